import { Box, Heading, HStack, Input, Link as Anchor, NativeSelect, Progress, Text } from "@chakra-ui/react";
import { Link, useSearchParams } from "react-router-dom";

import { part, type Line, type Overview } from "./api";
import { FirstUse } from "./FirstUse";
import { Failure, Grid, lag, Loading, LogEnds, ROOT, Said, Spark, State, Trouble } from "./bits";
import { ago, duration } from "./texts";
import { useAsked } from "./useAsked";

const EVERY_S = 10;

/** All connectors, the one that wants to be looked at most first. */
export function OverviewPage() {
  const [query, setQuery] = useSearchParams();
  const asked = useAsked<Overview>("connectors", EVERY_S);
  const { data, error } = asked;
  const [text, state, source] = ["text", "state", "source"].map((name) => query.get(name) ?? "") as [string, string, string];
  const choose = (name: string, chosen: string) => {
    const next = new URLSearchParams(query);
    if (chosen) {
      next.set(name, chosen);
    } else {
      next.delete(name);
    }
    setQuery(next, { replace: true });
  };
  const lines = (data?.connectors ?? []).filter((line) => fits(line, text.toLowerCase(), state, source));
  return (
    <>
      <HStack justify="space-between" mb={3} flexWrap="wrap">
        <Heading as="h1" size="xl">
          CDC connectors
        </Heading>
        <Anchor asChild variant="underline">
          <Link to={`${ROOT}/new`}>New connector</Link>
        </Anchor>
      </HStack>
      {error ? <Failure error={error} /> : null}
      {data === undefined && !error ? <Loading /> : null}
      {data && data.total === 0 ? <FirstUse /> : null}
      {data && data.total > 0 ? (
        <>
          <HStack gap={3} mb={3} flexWrap="wrap">
            <Input aria-label="Search" placeholder="Search name, problem, phase" maxW="20rem" value={text} onChange={(e) => choose("text", e.target.value)} />
            <Choice label="State" all={`All states (${data.total})`} chosen={state} onChoose={(v) => choose("state", v)} options={Object.entries(data.states).map(([v, n]) => [v, `${v} (${n})`])} />
            <Choice label="Source" all="All sources" chosen={source} onChoose={(v) => choose("source", v)} options={data.sources.map((v) => [v, v])} />
            <Text color="fg.muted" aria-live="polite">
              {lines.length} of {data.total}
            </Text>
          </HStack>
          <Grid label="Connectors" head={["Connector", "State", "What is wrong", "What it does", "Freshness p50 / p95", "Lag", "Events/s", "Next run"]} nothing="No connector fits." rows={lines.map((line) => ({ key: line.connector, cells: cells(line) }))} />
        </>
      ) : null}
    </>
  );
}

function fits(line: Line, text: string, state: string, source: string): boolean {
  if ((state && line.state !== state) || (source && line.source !== source)) {
    return false;
  }
  return [line.connector, line.phase, ...(line.problems ?? [])].some((found) => found.toLowerCase().includes(text));
}

function Choice(props: { label: string; all: string; chosen: string; options: string[][]; onChoose: (value: string) => void }) {
  return (
    <NativeSelect.Root maxW="14rem">
      <NativeSelect.Field aria-label={props.label} value={props.chosen} onChange={(e) => props.onChoose(e.target.value)}>
        <option value="">{props.all}</option>
        {props.options.map(([value, shown]) => (
          <option key={value} value={value}>
            {shown}
          </option>
        ))}
      </NativeSelect.Field>
      <NativeSelect.Indicator />
    </NativeSelect.Root>
  );
}

/** The command that repairs it, where there is one: the connector's page has the whole text. */
function Repair({ text }: { text: string }) {
  const command = /`(airflow cdc [^`]+)`/.exec(text);
  return (
    <Text lineClamp={3} color="fg.muted" title={text}>
      Repair: <Said text={command ? command[0] : text} />
    </Text>
  );
}

function cells(line: Line) {
  const { freshness, snapshot, next_run: next } = line;
  return [
    <Box key="name">
      <Anchor asChild fontWeight="semibold">
        <Link to={`${ROOT}/connectors/${part(line.connector)}`}>{line.connector}</Link>
      </Anchor>
      <Text color="fg.muted">{line.source}</Text>
    </Box>,
    <HStack key="state" gap={1} flexWrap="wrap">
      <State word={line.state} />
      <Trouble line={line} />
    </HStack>,
    <Box key="wrong" minW="20rem">
      {(line.problems ?? []).map((problem) => (
        <Text key={problem} lineClamp={3}>{problem}</Text>
      ))}
      {line.error?.repair ? <Repair text={line.error.repair} /> : null}
    </Box>,
    <Box key="phase" minW="10rem">
      <Text lineClamp={4}>{line.phase}</Text>
      {snapshot ? (
        <>
          <Text>{snapshot.text}</Text>
          {snapshot.part !== null && snapshot.part !== undefined ? (
            <Progress.Root value={snapshot.part * 100} size="xs" aria-label="Snapshot">
              <Progress.Track>
                <Progress.Range />
              </Progress.Track>
            </Progress.Root>
          ) : null}
          {snapshot.left_s !== null && snapshot.left_s !== undefined ? <Text color="fg.muted">about {duration(snapshot.left_s)} left</Text> : null}
        </>
      ) : null}
    </Box>,
    freshness ? (
      <Box key="fresh">
        {duration(freshness.p50_s)} / {duration(freshness.p95_s)}
        <Text color="fg.muted">
          {freshness.where}; worst {freshness.worst_topic}, {duration(freshness.worst_s)}
        </Text>
      </Box>
    ) : (
      "no change in the last hour"
    ),
    <Box key="lag">
      {lag(line)}
      <LogEnds line={line} />
      {line.oldest_transaction ? <Text color="fg.muted">open since {duration(line.oldest_transaction.age_s)}: {line.oldest_transaction.id}</Text> : null}
    </Box>,
    <Spark key="rate" line={line} />,
    next ? (next.paused ? "its DAG is paused" : next.at ? ago(next.at) : "by event or by hand") : "not known",
  ];
}
