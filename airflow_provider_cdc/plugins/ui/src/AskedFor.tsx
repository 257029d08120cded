import { Box, Link as Anchor, Spinner, Text } from "@chakra-ui/react";
import { Link } from "react-router-dom";

import { titleOf } from "./choices";
import { part, type AskedFor } from "./api";
import { Failure, Grid, Section, Shown, State } from "./bits";
import { Long, shortened } from "./long";
import { Older, useNewest } from "./newest";
import { now, value } from "./texts";
import { useAsked, type Asked } from "./useAsked";
import { When } from "./When";

const DAY_MS = 86_400_000;
const EVERY_S = 5;
const UNDER_WAY: AskedFor["fate"][] = ["queued", "running"];

/** The run that was begun just now, until it has ended, and what it says. */
export function FollowedRun({ connector, dag, run }: { connector: string; dag: string; run: string }) {
  const { data, error } = useAsked<AskedFor[]>(`connectors/${part(connector)}/actions`, 2);
  const found = data?.find((one) => one.dag === dag && one.run === run);
  const ended = found !== undefined && !UNDER_WAY.includes(found.fate);
  return (
    <Box data-testid="run" aria-live="polite" display="flex" flexDirection="column" gap={2}>
      <Box display="flex" gap={2} alignItems="center" flexWrap="wrap">
        <RunLink dag={dag} run={run} />
        {found ? <State word={found.fate} /> : null}
        {ended ? null : <><Spinner size="xs" aria-hidden="true" /><Text color="fg.muted">Waiting for the run to end</Text></>}
      </Box>
      {error ? <Failure error={error} /> : null}
      {found?.outcome ? <Outcome text={found.outcome} /> : null}
    </Box>
  );
}

/** What is under way, and the last thing that was asked for, if that was not long ago. */
export function LastAsked({ asked }: { asked: Asked<AskedFor[]> }) {
  const recent = (asked.data ?? []).filter((one, n) => one.run && (UNDER_WAY.includes(one.fate) || (n === 0 && now() - Date.parse(one.at) < DAY_MS)));
  return recent.length === 0 && !asked.error ? null : (
    <Box mt={3} data-testid="last-asked">
      {asked.error ? <Failure error={asked.error} /> : null}
      {recent.slice(0, 3).map((one) => (
        <Box key={one.number} display="flex" gap={2} alignItems="center" flexWrap="wrap">
          <Text overflowWrap="anywhere">
            <Long text={titleOf(one.action)} />, requested by <Long text={one.by} /> <When at={one.at} />:
          </Text>
          <State word={one.fate} />
          <RunLink dag={one.dag ?? ""} run={one.run ?? ""} />
          {one.outcome ? <Outcome text={one.outcome} /> : null}
        </Box>
      ))}
    </Box>
  );
}

/** Everything that was asked for on pages: who, when, why, and what has become of it. */
export function AskedForList({ path }: { path: string }) {
  const newest = useNewest<AskedFor>(`${path}/actions`, 20, EVERY_S);
  return (
    <Section title="Requested on these pages">
      <Shown asked={newest.asked}>
        {(found) => (
          <Grid
            label="Requested on these pages"
            head={["When", "Action", "Who", "Reason", "Result"]}
            nothing="No action was requested yet."
            rows={found.map((one) => ({
              key: String(one.number),
              cells: [
                <Text key="at" minW="6rem"><When at={one.at} /></Text>,
                <Box key="what" minW="8rem">
                  <Long text={titleOf(one.action)} />
                  {Object.entries(one.parameters).map(([name, given]) => <Text key={name} color="fg.muted"><Long text={`${name}: ${value(given)}`} /></Text>)}
                </Box>,
                <Text key="by" minW="5rem"><Long text={one.by} /></Text>,
                <Text key="why" minW="6rem"><Long text={one.reason ?? ""} /></Text>,
                <Box key="fate" display="flex" flexDirection="column" alignItems="flex-start" gap={1}>
                  <State word={one.fate} />
                  {one.dag && one.run ? <RunLink dag={one.dag} run={one.run} /> : null}
                  {one.outcome ? <Outcome text={one.outcome} /> : null}
                </Box>,
              ],
            }))}
          />
        )}
      </Shown>
      <Older of={newest} />
    </Section>
  );
}

function RunLink({ dag, run }: { dag: string; run: string }) {
  return (
    <Anchor asChild variant="underline" overflowWrap="anywhere">
      <Link to={`/dags/${part(dag)}/runs/${part(run)}`}>{shortened(`${dag} ${run}`, 200)}</Link>
    </Anchor>
  );
}

function Outcome({ text }: { text: string }) {
  return (
    <Box as="pre" tabIndex={0} aria-label="Result of the run" role="region" w="full" p={2} borderWidth="1px" borderRadius="md" fontSize="sm" fontFamily="mono" whiteSpace="pre-wrap" overflowWrap="anywhere" maxH="20rem" overflowY="auto" unicodeBidi="isolate">
      {text}
    </Box>
  );
}
