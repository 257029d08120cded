import { useCallback, useEffect, useState } from "react";

import { ask, Refused } from "./api";

export interface Asked<T> {
  /** What the last answer was; it stays while a new one is awaited, so that nothing blinks. */
  data: T | undefined;
  error: Error | undefined;
  /** Since when an answer is awaited that takes too long. */
  late: Date | undefined;
  again: () => void;
}

const LATE_S = 10;

/** What is not there any more, or not for this person, is not shown any longer either. */
const hidden = (error: unknown) => error instanceof Refused && (error.status === 403 || error.status === 404);

/**
 * Asks the API, and again every few seconds as long as the tab is seen. Whatever is asked later counts: an answer to what was asked before is not waited for.
 *
 * @param about what is asked for, where paths that differ ask for the same, such as more of it: what was seen stays until the answer comes
 */
export function useAsked<T>(path: string, everySeconds?: number, about: string = path): Asked<T> {
  const [found, setFound] = useState<{ about: string; data?: T; error?: Error }>({ about });
  const [turn, setTurn] = useState(0);
  const [late, setLate] = useState<Date | undefined>(undefined);

  useEffect(() => {
    let asking: AbortController | undefined;
    let timer: number | undefined;
    let tooLong: number | undefined;
    const stop = () => {
      asking?.abort();
      window.clearTimeout(timer);
      window.clearTimeout(tooLong);
    };
    const look = async () => {
      stop();
      if (document.hidden) {
        return;
      }
      const mine = new AbortController();
      asking = mine;
      const began = new Date();
      tooLong = window.setTimeout(() => setLate(began), LATE_S * 1000);
      let data: T | undefined;
      let error: Error | undefined;
      try {
        data = await ask<T>(path, mine.signal);
      } catch (e) {
        error = e as Error;
      }
      if (mine.signal.aborted) {
        return;
      }
      window.clearTimeout(tooLong);
      setLate(undefined);
      setFound((before) => ({ about, data: error === undefined ? data : before.about === about && !hidden(error) ? before.data : undefined, error }));
      if (everySeconds !== undefined) {
        timer = window.setTimeout(() => void look(), everySeconds * 1000);
      }
    };
    const seen = () => void look();
    setLate(undefined);
    void look();
    document.addEventListener("visibilitychange", seen);
    return () => {
      stop();
      document.removeEventListener("visibilitychange", seen);
    };
  }, [path, everySeconds, about, turn]);

  const again = useCallback(() => setTurn((n) => n + 1), []);
  const mine = found.about === about;
  return { data: mine ? found.data : undefined, error: mine ? found.error : undefined, late, again };
}
