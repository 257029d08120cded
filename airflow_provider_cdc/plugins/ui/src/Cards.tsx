import { Box, SimpleGrid, Text } from "@chakra-ui/react";
import type { ReactNode } from "react";

import type { Line } from "./api";
import { lagAt, stateWord } from "./bits";
import { number } from "./flow";
import { Long } from "./long";
import { Spark, type Dot } from "./Spark";
import { clock, duration, now, rate } from "./texts";
import { When } from "./When";

/** One number with its unit, its small line, and what it is about. */
export function Card({ title, value, dots, unit, asOf, children }: { title: string; value: ReactNode; dots?: Dot[]; unit?: (n: number) => string; asOf?: string; children?: ReactNode }) {
  return (
    <Box borderWidth="1px" borderRadius="md" p={3} minW={0} role="group" aria-label={title}>
      <Text fontSize="xs" color="fg.muted" textTransform="uppercase" letterSpacing="wide">{title}</Text>
      <Text fontSize="xl" fontWeight={asOf ? "normal" : "semibold"} color={asOf ? "fg.muted" : undefined} lineHeight="short" my={1}>{value}</Text>
      {dots ? <Spark dots={dots} unit={unit ?? String} wide old={!!asOf} /> : null}
      <Box fontSize="xs" color="fg.muted">
        {asOf ? <Text fontWeight="semibold">{asOf}</Text> : null}
        {children}
      </Box>
    </Box>
  );
}

export const ratesOf = (line: Line): Dot[] => (line.events_per_s ?? []).map((one) => ({ at: one.at, y: one.events_per_s }));
export const lagsOf = (line: Line): Dot[] => (line.events_per_s ?? []).flatMap((one) => (one.lag_s === null || one.lag_s === undefined ? [] : [{ at: one.at, y: one.lag_s }]));
export const freshOf = (line: Line): Dot[] => (line.freshness?.points ?? []).map((one) => ({ at: one.at, y: one.p95_s }));

/** Pieces are of five minutes at most: the last one of a connector that captures began less than two of them ago. */
const STILL_S = 600;

/** The time of a figure that a trouble has made old; nothing as long as it is of now. */
export function asOf(line: Line, dots: Dot[]): string | undefined {
  const last = dots.at(-1);
  if (last === undefined || (line.state !== "failed" && (line.trouble < 2 || now() / 1000 - last.at <= STILL_S))) {
    return undefined;
  }
  return `as of ${clock(last.at)}${line.state === "failed" ? ", before the failure" : ""}`;
}

const moment = (at: number) => new Date(at * 1000).toISOString();

/** The length of the time that small lines show. */
function span(dots: Dot[]): string {
  const first = dots[0];
  return first === undefined ? "the last hour" : `the last ${duration(Math.min(Math.max(now() / 1000 - first.at, 60), 3600))}`;
}

/** State, lag, freshness and rate of one connector. */
export function Cards({ line, next, left }: { line: Line; next: string; left: number }) {
  const { freshness } = line;
  const lags = lagsOf(line);
  const lastLag = lags.at(-1);
  const unknown = line.lag_s === null || line.lag_s === undefined;
  const lagAsOf = unknown ? asOf(line, lags) : undefined;
  const rates = ratesOf(line);
  const last = rates.at(-1);
  const still = line.state === "failed" || (last !== undefined && now() / 1000 - last.at > STILL_S);
  return (
    <SimpleGrid columns={{ base: 2, lg: 4 }} gap={2} my={3}>
      <Card title="State" value={<Long text={stateWord(line.state)} most={40} />}>
        {line.state_since ? <Text>since <When at={line.state_since} /></Text> : null}
        <Text><Long text={line.phase} most={160} /></Text>
        {line.captured_by ? <Text>by <Long text={line.captured_by} most={120} /></Text> : <Text>{next}</Text>}
      </Card>
      <Card title="Lag behind the source" value={lagAsOf ? duration(lastLag?.y) : duration(line.lag_s)} dots={lags} unit={duration} asOf={lagAsOf}>
        {unknown ? <Text>{line.state === "failed" ? "not measured since the last run failed" : line.pending_tables.length ? "measured after the snapshot" : "not measured yet"}</Text> : <Text>measured {lagAt(line)}; line: maximum, {span(lags)}</Text>}
        {line.lag_trend ? <Text><Long text={line.lag_trend.text} most={80} /></Text> : null}
        {line.oldest_transaction ? <Text>a transaction has been open for {duration(line.oldest_transaction.age_s)}: <Long text={line.oldest_transaction.id} most={60} /></Text> : null}
      </Card>
      <Card title="Freshness, p95" value={freshness ? duration(freshness.p95_s) : "none"} dots={freshOf(line)} unit={duration} asOf={asOf(line, freshOf(line))}>
        {freshness ? (
          <>
            <Text>from commit to {freshness.where}, {span(freshOf(line))}; p50 {duration(freshness.p50_s)}</Text>
            <Text>worst: <Long text={freshness.worst_topic} most={80} />, {duration(freshness.worst_s)}</Text>
            {left ? <Text>without {number(left, "table")} that could not be updated</Text> : null}
          </>
        ) : (
          <Text>no change in the last hour</Text>
        )}
      </Card>
      <Card title="Rate" value={last && !still ? rate(last.y) : "none"} dots={rates} unit={rate} asOf={asOf(line, rates)}>
        {last === undefined ? <Text>no event in the last hour</Text> : still ? <Text>last: {rate(last.y)}, <When at={moment(last.at)} />; line: {span(rates)}</Text> : <Text>captured since <When at={moment(last.at)} />; line: {span(rates)}</Text>}
      </Card>
    </SimpleGrid>
  );
}
