import { Alert, Box, Button, Text } from "@chakra-ui/react";

import type { CheckAnswer } from "./api";
import { Failure, LookedAt } from "./bits";
import { Copied } from "./copied";
import { Long } from "./long";
import { useLook } from "./useLook";

/** Whether capture can begin: the source is asked when somebody wants to know. */
export function CheckTab({ path, allowed }: { path: string; allowed: boolean }) {
  const { data, at, error, busy, look } = useLook<CheckAnswer>(`${path}/check`);
  if (!allowed) {
    return <Text color="fg.muted">Querying the source requires the right to operate this connector.</Text>;
  }
  return (
    <>
      <Text mb={2}>The check queries the source for everything that capture needs, and changes nothing at the source.</Text>
      <Button size="sm" loading={busy} loadingText="Querying the source" onClick={() => void look()}>
        Check now
      </Button>
      <Box mt={3} aria-live="polite">
        {error ? <Failure error={error} /> : null}
        {data ? <Findings found={data} /> : null}
        <LookedAt at={at} />
      </Box>
    </>
  );
}

export function Findings({ found }: { found: CheckAnswer }) {
  return (
    <Box data-testid="findings">
      <Alert.Root status={found.ready ? "success" : "error"}>
        <Alert.Indicator />
        <Alert.Content>
          <Alert.Title>{found.ready ? "Ready for capture." : "Not ready for capture."}</Alert.Title>
          {found.log_retention ? <Text><Long text={found.log_retention.text} /></Text> : null}
          {found.position ? <Text>The log ends at <Long text={found.position} />.</Text> : null}
          {found.position ? <Text>{found.waiting ? <>Pending work: <Long text={found.waiting} />.</> : "All changes are captured."}</Text> : null}
        </Alert.Content>
      </Alert.Root>
      {found.findings.map((one, n) => (
        <Box key={`${n} ${one.problem}`} mt={4}>
          <Text fontWeight="semibold" overflowWrap="anywhere" unicodeBidi="isolate">
            {one.fatal ? "Required: " : "Recommended: "}
            <Long text={one.problem} />
          </Text>
          <Copied text={one.fix} label={`fix ${n + 1}`} />
        </Box>
      ))}
    </Box>
  );
}
