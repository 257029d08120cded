import { Alert, Badge, Box, Button, Text } from "@chakra-ui/react";
import { useEffect } from "react";

import type { Detail, GapAnswer } from "./api";
import { Failure, Section } from "./bits";
import { Copied } from "./copied";
import { useLook } from "./useLook";

/** Whether the log still holds the position, with the ways out if it does not. It is asked at once when the last run has failed for that. */
export function GapReport({ path, found }: { path: string; found: Detail }) {
  const { data, error, busy, look } = useLook<GapAnswer>(`${path}/gap`);
  const allowed = found.rights.includes("operate");
  const lost = (found.line.error?.repair ?? "").includes("airflow cdc gap");
  useEffect(() => {
    if (lost && allowed) {
      void look();
    }
  }, [lost, allowed, look]);
  return (
    <Section title="Does the source's log still hold the position?">
      {allowed ? (
        <Button size="sm" variant="outline" loading={busy} loadingText="The source is asked" onClick={() => void look()}>
          Ask the source
        </Button>
      ) : (
        <Text color="fg.muted">To have the source asked needs the right to operate this connector.</Text>
      )}
      <Box mt={3} aria-live="polite">
        {error ? <Failure error={error} /> : null}
        {data ? <Report found={data} /> : null}
      </Box>
    </Section>
  );
}

function Report({ found }: { found: GapAnswer }) {
  const why = found.gap?.why;
  return (
    <Box data-testid="gap">
      <Alert.Root status={found.gap ? "error" : "success"}>
        <Alert.Indicator />
        <Alert.Content>
          <Alert.Title overflowWrap="anywhere">{found.text}</Alert.Title>
          {typeof why === "string" ? <Text overflowWrap="anywhere">{why}</Text> : null}
        </Alert.Content>
      </Alert.Root>
      {found.ways.length > 0 ? <Text mt={3}>Ways to go on; without --confirm each only says what it would do:</Text> : null}
      {found.ways.map((way) => (
        <Box key={way.repair} mt={3}>
          <Text>
            {way.loses ? <Badge colorPalette="red" me={2}>loses changes</Badge> : null}
            {way.effect}
          </Text>
          <Copied text={way.command} label={`the command of ${way.repair}`} />
        </Box>
      ))}
    </Box>
  );
}
