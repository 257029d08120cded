import { Alert, Badge, Box, Button, Text } from "@chakra-ui/react";
import { useEffect } from "react";

import { ActionButtons } from "./Actions";
import { repairOf, type Choice } from "./choices";
import type { Detail, GapAnswer } from "./api";
import { Failure, LookedAt, Section } from "./bits";
import { Copied } from "./copied";
import { Long } from "./long";
import { useLook } from "./useLook";

/** Whether the log still holds the position, with the ways out if it does not. It is asked at once when the last run has failed for that. */
export function GapReport({ path, found, onChoose }: { path: string; found: Detail; onChoose: (choice: Choice) => void }) {
  const { data, at, error, busy, look } = useLook<GapAnswer>(`${path}/gap`);
  const allowed = found.rights.includes("operate");
  const lost = (found.line.error?.repair ?? "").includes("airflow cdc gap");
  useEffect(() => {
    if (lost && allowed) {
      void look();
    }
  }, [lost, allowed, look]);
  return (
    <Section title="Does the source's log still contain the position?">
      {allowed ? (
        <Button size="sm" variant="outline" loading={busy} loadingText="Querying the source" onClick={() => void look()}>
          Check the log
        </Button>
      ) : (
        <Text color="fg.muted">Querying the source requires the right to operate this connector.</Text>
      )}
      <Box mt={3} aria-live="polite">
        {error ? <Failure error={error} /> : null}
        {data ? <Report answer={data} found={found} onChoose={onChoose} /> : null}
        <LookedAt at={at} />
      </Box>
    </Section>
  );
}

function Report({ answer, found, onChoose }: { answer: GapAnswer; found: Detail; onChoose: (choice: Choice) => void }) {
  const why = answer.gap?.why;
  const repairs = found.rights.includes("administer");
  return (
    <Box data-testid="gap">
      <Alert.Root status={answer.gap ? "error" : "success"}>
        <Alert.Indicator />
        <Alert.Content>
          <Alert.Title><Long text={answer.text} /></Alert.Title>
          {typeof why === "string" ? <Text><Long text={why} /></Text> : null}
        </Alert.Content>
      </Alert.Root>
      {answer.ways.length > 0 ? <Text mt={3}>Ways to continue. {repairs ? "Each button shows its plan first; without --confirm, each command only shows its plan:" : "Without --confirm, each command only shows its plan. Repairing the gap on this page requires the right to administer this connector:"}</Text> : null}
      {answer.ways.map((way) => (
        <Box key={way.repair} mt={3}>
          <Text>
            {way.loses ? <Badge colorPalette="red" me={2}>loses changes</Badge> : null}
            <Long text={way.effect} />
          </Text>
          <Copied text={way.command} label={`the command for ${way.repair}`} />
          {repairs ? <ActionButtons choices={[repairOf(way.repair)]} onChoose={onChoose} /> : null}
        </Box>
      ))}
    </Box>
  );
}
