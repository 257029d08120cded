import { useCallback, useEffect, useRef, useState } from "react";

import { ask } from "./api";

/** Something that is asked only when a person wants it, such as a look at the source. The last answer stays until there is another one; `at` is when it came, and `of` what was asked, as JSON. */
export function useLook<T>(path: string) {
  const [found, setFound] = useState<{ data: T; at: Date; of: string } | undefined>(undefined);
  const [error, setError] = useState<Error | undefined>(undefined);
  const [busy, setBusy] = useState(false);
  const stop = useRef<AbortController | undefined>(undefined);
  const look = useCallback(
    async (body: unknown = {}) => {
      stop.current?.abort();
      const mine = new AbortController();
      stop.current = mine;
      setBusy(true);
      setError(undefined);
      try {
        const data = await ask<T>(path, mine.signal, body);
        if (!mine.signal.aborted) {
          setFound({ data, at: new Date(), of: JSON.stringify(body) });
        }
      } catch (e) {
        if (!mine.signal.aborted) {
          setFound(undefined);
          setError(e as Error);
        }
      }
      if (!mine.signal.aborted) {
        setBusy(false);
      }
    },
    [path],
  );
  useEffect(() => {
    setFound(undefined);
    setError(undefined);
    setBusy(false);
    return () => stop.current?.abort();
  }, [path]);
  return { data: found?.data, at: found?.at, of: found?.of, error, busy, look };
}
