import { Button, HStack, Text } from "@chakra-ui/react";
import { useMemo, useState } from "react";

import { count } from "./texts";
import { useAsked, type Asked } from "./useAsked";

/** Entries that the API gives at most. */
const MOST = 1000;

export interface Newest<T> {
  asked: Asked<T[]>;
  /** Entries that the last answer has at most. */
  limit: number;
  /** Older ones are awaited. */
  awaited: boolean;
  more: () => void;
}

/** The newest entries of a list, and older ones when somebody wants them. */
export function useNewest<T>(path: string, first: number, everySeconds?: number): Newest<T> {
  const [limit, setLimit] = useState(first);
  const asked = useAsked<T[]>(`${path}?limit=${limit}`, everySeconds, path);
  const answered = useMemo(() => limit, [asked.data]); // what was asked for when it came
  return { asked, limit: answered, awaited: answered !== limit && !asked.error, more: () => setLimit((before) => Math.min(MOST, before * 4)) };
}

/** That there are older entries than those that are shown. */
export function Older({ of: { asked, limit, awaited, more } }: { of: Newest<unknown> }) {
  const shown = asked.data?.length ?? 0;
  return shown < limit && shown < MOST ? null : (
    <HStack gap={3} my={2} flexWrap="wrap">
      <Text color="fg.muted" aria-live="polite">The newest {count(shown)} are shown.</Text>
      {shown < MOST ? (
        <Button size="xs" variant="outline" loading={awaited} loadingText="Loading" onClick={more}>
          Show older entries
        </Button>
      ) : null}
    </HStack>
  );
}
