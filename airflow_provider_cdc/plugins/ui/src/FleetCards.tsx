import { SimpleGrid, Text } from "@chakra-ui/react";

import type { Line, Overview } from "./api";
import { stateWord } from "./bits";
import { Card, freshOf, lagsOf, ratesOf } from "./Cards";
import { Long } from "./long";
import type { Dot } from "./Spark";
import { count, duration, rate } from "./texts";

const PIECE_S = 300;
const LEVELS = ["OK", "inactive", "late", "needs attention"];

/** The connectors together: their state, and the worst lag and freshness with the connector that has it. */
export function FleetCards({ data: { connectors, states, total } }: { data: Overview }) {
  const of = (level: number) => connectors.filter(({ trouble }) => trouble === level).length;
  const levels = (of(3) ? [2, 1, 0] : [2, 1]).filter((level) => of(level) > 0).map((level) => `${count(of(level))} ${LEVELS[level]}`);
  const late = worst(connectors, (line) => line.lag_s ?? undefined);
  const stale = worst(connectors, (line) => line.freshness?.p95_s);
  const rates = sum(connectors);
  const last = rates.at(-1);
  return (
    <SimpleGrid columns={{ base: 2, lg: 4 }} gap={2} mb={4}>
      <Card title="Connectors" value={of(3) ? `${count(of(3))} of ${count(total)} need attention` : `${count(total)} without an error`}>
        <Text>{levels.join(", ")}</Text>
        <Text><Long text={Object.entries(states).map(([state, n]) => `${count(n)} ${stateWord(state)}`).join(", ")} most={160} /></Text>
      </Card>
      <Card title="Largest lag" value={late ? duration(late.lag_s) : "not known"} dots={late ? lagsOf(late) : []} unit={duration}>
        {late ? <Text><Long text={late.connector} most={80} />; line: its last hour</Text> : "of no connector"}
      </Card>
      <Card title="Worst freshness, p95" value={stale?.freshness ? duration(stale.freshness.p95_s) : "none"} dots={stale ? freshOf(stale) : []} unit={duration}>
        {stale?.freshness ? <Text><Long text={stale.connector} most={80} />, from commit to {stale.freshness.where}; line: its last hour</Text> : "no change in the last hour"}
      </Card>
      <Card title="Rate" value={last ? rate(last.y) : "none"} dots={rates} unit={rate}>
        captured by all connectors; line: the last hour
      </Card>
    </SimpleGrid>
  );
}

function worst(connectors: Line[], by: (line: Line) => number | undefined): Line | undefined {
  return connectors.filter((line) => by(line) !== undefined).sort((a, b) => (by(b) ?? 0) - (by(a) ?? 0))[0];
}

/** The rates of all connectors in pieces of five minutes: shorter pieces of one count by their part. */
function sum(connectors: Line[]): Dot[] {
  const found = new Map<number, number>();
  for (const line of connectors) {
    const rates = ratesOf(line);
    const lengths = rates.slice(1).map((one, n) => one.at - (rates[n]?.at ?? 0));
    const length = Math.min(PIECE_S, ...lengths.filter((n) => n > 0));
    for (const { at, y } of rates) {
      const piece = Math.floor(at / PIECE_S) * PIECE_S;
      found.set(piece, (found.get(piece) ?? 0) + (y * length) / PIECE_S);
    }
  }
  return [...found].sort(([a], [b]) => a - b).map(([at, y]) => ({ at, y }));
}
