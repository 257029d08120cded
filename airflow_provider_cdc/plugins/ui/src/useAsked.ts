import { useCallback, useEffect, useRef, useState } from "react";

import { ask } from "./api";

export interface Asked<T> {
  /** What the last answer was; it stays while a new one is awaited, so that nothing blinks. */
  data: T | undefined;
  error: Error | undefined;
  /** Since when an answer is awaited that takes too long. */
  late: Date | undefined;
  again: () => void;
}

const LATE_S = 10;

/** Asks the API, and again every few seconds as long as the tab is seen. */
export function useAsked<T>(path: string, everySeconds?: number): Asked<T> {
  const [found, setFound] = useState<{ path: string; data?: T; error?: Error }>({ path });
  const [turn, setTurn] = useState(0);
  const [late, setLate] = useState<Date | undefined>(undefined);
  const timer = useRef<number | undefined>(undefined);

  useEffect(() => {
    const stop = new AbortController();
    const look = async () => {
      if (document.hidden) {
        return;
      }
      const began = new Date();
      const tooLong = window.setTimeout(() => setLate(began), LATE_S * 1000);
      stop.signal.addEventListener("abort", () => window.clearTimeout(tooLong));
      try {
        const data = await ask<T>(path, stop.signal);
        setFound({ path, data });
      } catch (e) {
        if (!stop.signal.aborted) {
          setFound((before) => ({ path, data: before.path === path ? before.data : undefined, error: e as Error }));
        }
      }
      window.clearTimeout(tooLong);
      setLate(undefined);
      if (everySeconds !== undefined && !stop.signal.aborted) {
        window.clearTimeout(timer.current);
        timer.current = window.setTimeout(() => void look(), everySeconds * 1000);
      }
    };
    const seen = () => {
      window.clearTimeout(timer.current);
      void look();
    };
    void look();
    document.addEventListener("visibilitychange", seen);
    return () => {
      stop.abort();
      window.clearTimeout(timer.current);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [path, everySeconds, turn]);

  const again = useCallback(() => setTurn((n) => n + 1), []);
  const mine = found.path === path;
  return { data: mine ? found.data : undefined, error: mine ? found.error : undefined, late, again };
}
