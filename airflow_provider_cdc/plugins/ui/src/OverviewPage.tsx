import { Box, Button, Heading, HStack, Input, Link as Anchor, NativeSelect, Progress, Text } from "@chakra-ui/react";
import { Link } from "react-router-dom";

import { part, type Line, type Overview } from "./api";
import { FirstUse } from "./FirstUse";
import { Grid, lagAt, LogEnds, ROOT, Shown, State, stateWord, Trouble } from "./bits";
import { asOf, freshOf, lagsOf, ratesOf } from "./Cards";
import { FleetCards } from "./FleetCards";
import { commandIn, Long, Repair, shortened } from "./long";
import { ErrorName } from "./ProblemBox";
import { Spark } from "./Spark";
import { duration, now, rate } from "./texts";
import { useAsked } from "./useAsked";
import { useFilter } from "./useFilter";
import { When } from "./When";

const EVERY_S = 10;
/** Characters of one text in the table. */
const MOST = 240;

/** All connectors, the one that wants to be looked at most first. */
export function OverviewPage() {
  const [chosen, choose] = useFilter(FILTERS);
  const asked = useAsked<Overview>("connectors", EVERY_S);
  return (
    <>
      <HStack justify="space-between" mb={3} flexWrap="wrap">
        <Heading as="h1" size="xl">
          CDC connectors
        </Heading>
        <Button asChild size="sm" variant="solid" flex="none">
          <Link to={`${ROOT}/new`}>New connector</Link>
        </Button>
      </HStack>
      <Shown asked={asked}>{(data) => (data.total === 0 ? <FirstUse /> : <Lines data={data} chosen={chosen} onChoose={choose} />)}</Shown>
    </>
  );
}

const FILTERS = ["text", "state", "source", "tag"] as const;

type Chosen = Record<(typeof FILTERS)[number], string>;

const HEAD = ["Connector", "Status", "Problem", "Freshness p95", "Lag", "Rate", "Next run"];

function Lines({ data, chosen, onChoose }: { data: Overview; chosen: Chosen; onChoose: (name: keyof Chosen, value: string) => void }) {
  const lines = data.connectors.filter((line) => fits(line, chosen));
  return (
    <>
      <FleetCards data={data} />
      <HStack gap={3} mb={3} flexWrap="wrap">
        <Input aria-label="Search" placeholder="Search name, problem, phase" maxW="20rem" value={chosen.text} onChange={(e) => onChoose("text", e.target.value)} />
        <Choice label="State" all={`All states (${data.total})`} chosen={chosen.state} onChoose={(v) => onChoose("state", v)} options={Object.entries(data.states).map(([v, n]) => [v, `${stateWord(v)} (${n})`])} />
        <Choice label="Source" all="All sources" chosen={chosen.source} onChoose={(v) => onChoose("source", v)} options={data.sources.map((v) => [v, v])} />
        {data.tags.length > 0 || chosen.tag ? <Choice label="Tag" all="All tags" chosen={chosen.tag} onChoose={(v) => onChoose("tag", v)} options={data.tags.map((v) => [v, v])} /> : null}
        <Text color="fg.muted" aria-live="polite">
          {lines.length} of {data.total}
        </Text>
      </HStack>
      <Grid label="Connectors" head={HEAD} nothing="No connector matches." rows={lines.map((line) => ({ key: line.connector, cells: cells(line) }))} />
    </>
  );
}

function fits(line: Line, { text, state, source, tag }: Chosen): boolean {
  if ((state && line.state !== state) || (source && line.source !== source) || (tag && !line.tags?.includes(tag))) {
    return false;
  }
  return [line.connector, line.phase, ...(line.alerts ?? []).map(({ sentence }) => sentence)].some((found) => found.toLowerCase().includes(text.toLowerCase()));
}

function Choice(props: { label: string; all: string; chosen: string; options: string[][]; onChoose: (value: string) => void }) {
  // what was chosen stays a choice when no connector has it any more: the list is narrowed to it all the same
  const options = !props.chosen || props.options.some(([value]) => value === props.chosen) ? props.options : [...props.options, [props.chosen, `${props.chosen} (none)`]];
  return (
    <NativeSelect.Root maxW="14rem">
      <NativeSelect.Field aria-label={props.label} value={props.chosen} onChange={(e) => props.onChoose(e.target.value)}>
        <option value="">{props.all}</option>
        {options.map(([value, shown]) => (
          <option key={value} value={value}>
            {shortened(shown ?? "", 80)}
          </option>
        ))}
      </NativeSelect.Field>
      <NativeSelect.Indicator />
    </NativeSelect.Root>
  );
}

/** Rates are of pieces of five minutes at most: the last one of a connector that works began less than two of them ago. */
const OLD_S = 600;

function Rate({ line }: { line: Line }) {
  const last = ratesOf(line).at(-1);
  if (last === undefined) {
    return <Text color="fg.muted">no event in the last hour</Text>;
  }
  const old = now() / 1000 - last.at > OLD_S;
  return <Text>{rate(last.y)}{old ? <>, <When at={new Date(last.at * 1000).toISOString()} /></> : null}</Text>;
}

function cells(line: Line) {
  const { freshness, snapshot, next_run: next } = line;
  return [
    <Box key="name" minW="9rem">
      <Anchor asChild fontWeight="semibold">
        <Link to={`${ROOT}/connectors/${part(line.connector)}`}><bdi>{shortened(line.connector, MOST)}</bdi></Link>
      </Anchor>
      <Text color="fg.muted"><Long text={line.source ?? ""} most={MOST} /></Text>
      {line.tags?.length ? <Text color="fg.muted" fontSize="xs">Tags: <Long text={line.tags.join(", ")} most={MOST} /></Text> : null}
    </Box>,
    <Box key="phase" minW="10rem">
      <HStack gap={1} flexWrap="wrap" mb={1}>
        <Trouble line={line} />
        <State word={line.state} />
      </HStack>
      <Text><Long text={line.phase} most={MOST} /></Text>
      {snapshot ? (
        <>
          <Text><Long text={snapshot.text} most={MOST} /></Text>
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
    <Box key="wrong" minW="12rem">
      {(line.alerts ?? []).map(({ sentence }, n) => (
        <Text key={n}><Long text={sentence} most={MOST} /></Text>
      ))}
      {line.error?.name ? <Text mt={1}>Error: <ErrorName error={line.error} /></Text> : null}
      {line.error?.repair ? <Text mt={1}>Repair: <Repair text={commandIn(line.error.repair)} /></Text> : null}
    </Box>,
    freshness ? (
      <Box key="fresh">
        <Text color={asOf(line, freshOf(line)) ? "fg.muted" : undefined}>{duration(freshness.p95_s)}</Text>
        <Spark dots={freshOf(line)} unit={duration} old={!!asOf(line, freshOf(line))} />
        <Text color="fg.muted" fontSize="xs">
          {asOf(line, freshOf(line)) ? `${asOf(line, freshOf(line))}; ` : ""}p50 {duration(freshness.p50_s)}, {freshness.where}; worst <Long text={freshness.worst_topic} most={MOST} />, {duration(freshness.worst_s)}
        </Text>
      </Box>
    ) : (
      <Text key="fresh" color="fg.muted">no change in the last hour</Text>
    ),
    <Box key="lag">
      {duration(line.lag_s)}{line.lag_s !== null && line.lag_s !== undefined && lagAt(line) !== "now" ? `, ${lagAt(line)}` : ""}
      <Spark dots={lagsOf(line)} unit={duration} old={line.state === "failed"} />
      {line.lag_trend ? <Text color="fg.muted" fontSize="xs"><Long text={line.lag_trend.text} most={80} /></Text> : null}
      <LogEnds line={line} />
      {line.oldest_transaction ? <Text color="fg.muted">a transaction has been open for {duration(line.oldest_transaction.age_s)}: <Long text={line.oldest_transaction.id} most={60} /></Text> : null}
    </Box>,
    <Box key="rate">
      <Rate line={line} />
      <Spark dots={ratesOf(line)} unit={rate} old={line.state === "failed"} />
    </Box>,
    next ? (next.gone ? "its DAG is gone" : next.paused ? "its DAG is paused" : next.at ? <When key="next" at={next.at} /> : "on an event or manually") : "not known",
  ];
}
