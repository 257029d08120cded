import { Box, Button, HStack, SimpleGrid, Text } from "@chakra-ui/react";
import { useState } from "react";

import type { ChartsOf } from "./api";
import { Grid, Shown } from "./bits";
import { Long, shortened } from "./long";
import { Line, type Drawn } from "./Line";
import { SIGNS } from "./marks";
import { count, duration } from "./texts";
import { useAsked } from "./useAsked";
import { Moment } from "./When";

/** Marks that are listed. */
const MOST = 50;
const SPANS = ["hour", "day", "week"] as const;
/** Producer of metrics → its name for people. */
type Names = Record<string, string>;
type Point = ChartsOf["series"][number]["points"][number];

/** Lag, throughput, freshness and CPU over an hour, a day or a week; runs, snapshots, schema changes and errors are marked. */
export function Charts({ path, names }: { path: string; names: Names }) {
  const [span, setSpan] = useState<(typeof SPANS)[number]>("hour");
  const [tables, setTables] = useState(false);
  const asked = useAsked<ChartsOf>(`${path}/charts?span=${span}`, 15);
  const called = (producer: string) => names[producer] ?? producer;
  return (
    <>
      <HStack gap={2} my={2} flexWrap="wrap" role="group" aria-label="Time span">
        {SPANS.map((name) => (
          <Button key={name} size="xs" variant={name === span ? "solid" : "outline"} aria-pressed={name === span} onClick={() => setSpan(name)}>
            One {name}
          </Button>
        ))}
        <Button size="xs" variant="outline" aria-pressed={tables} onClick={() => setTables(!tables)}>
          As tables
        </Button>
      </HStack>
      <Shown asked={asked}>
        {(found) => (
          <>
            <Text color="fg.muted" mb={2}>
              Each point covers {duration(found.piece_s)}; {summary(found)}
            </Text>
            {tables ? found.series.map((one) => <AsTable key={one.producer} producer={called(one.producer)} points={one.points} />) : <Drawings found={found} called={called} />}
            <Happened found={found} names={names} />
          </>
        )}
      </Shown>
    </>
  );
}

function summary({ marks }: ChartsOf): string {
  const of = (kind: string) => marks.filter((mark) => mark.kind === kind).length;
  const failed = of("error");
  const number = (n: number, word: string) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;
  return `${number(of("run"), "run")} ended, ${failed ? number(failed, "error") : "no error"}.`;
}

function Drawings({ found, called }: { found: ChartsOf; called: (producer: string) => string }) {
  const capture = found.series.find(({ producer }) => producer === "capture")?.points ?? [];
  const of = (points: Point[], pick: (point: Point) => number | null) => points.map((point) => ({ x: point.at * 1000, y: pick(point) }));
  const fresh: Drawn[] = found.series.flatMap(({ producer, points }) => [
    { name: `${shortened(called(producer), 40)}, p50`, points: of(points, (point) => point.p50_s) },
    { name: `${shortened(called(producer), 40)}, p95`, points: of(points, (point) => point.p95_s) },
  ]);
  const charts: { title: string; lines: Drawn[] }[] = [
    { title: "Lag behind the source, in seconds", lines: [{ name: "maximum", points: of(capture, (point) => point.lag_s) }] },
    { title: "Events per second", lines: found.series.map(({ producer, points }) => ({ name: shortened(called(producer), 40), points: of(points, (point) => point.events_per_s) })) },
    { title: "Freshness, in seconds after the commit", lines: fresh },
    { title: "CPU of the capture, in percent of one core", lines: [{ name: "capture", points: of(capture, (point) => (point.cpu === null ? null : point.cpu * 100)) }] },
  ];
  return (
    <SimpleGrid columns={{ base: 1, lg: 2 }} gap={5}>
      {charts.map(({ title, lines }) => (
        <Line key={title} title={title} lines={lines} marks={found.marks} since={found.since * 1000} until={found.until * 1000} />
      ))}
    </SimpleGrid>
  );
}

function AsTable({ producer, points }: { producer: string; points: Point[] }) {
  const number = (n: number | null | undefined, digits = 1) => (n === null || n === undefined ? "not measured" : n.toLocaleString("en", { maximumFractionDigits: digits }));
  return (
    <Box mb={4}>
      <Text fontWeight="semibold"><Long text={producer} /></Text>
      <Grid
        label={`Measured by ${producer}`}
        head={["Start", "Events", "Events/s", "Lag, s", "Freshness p50 / p95, s", "CPU, %"]}
        nothing="No measurements in this time span."
        rows={points.map((point) => ({
          key: String(point.at),
          cells: [
            <Moment key="at" at={point.at} />, count(point.events), number(point.events_per_s, 2), number(point.lag_s),
            `${number(point.p50_s)} / ${number(point.p95_s)}`, number(point.cpu === null ? null : point.cpu * 100),
          ],
        }))}
      />
    </Box>
  );
}

/** Sentences about an apply with the name of its target. */
const withNames = (text: string, names: Names) => Object.entries(names).reduce((before, [producer, name]) => before.replace(producer, name), text);

function Happened({ found, names }: { found: ChartsOf; names: Names }) {
  const all = found.marks.filter(({ kind }) => kind !== "run");
  const told = all.slice(-MOST).reverse();
  return (
    <Box mt={5}>
      <Text color="fg.muted" mb={2}>
        Marks: {Object.entries(SIGNS).map(([kind, { sign }]) => `${sign} ${kind}`).join(", ")}.
      </Text>
      <Grid
        label="Marked events"
        head={["When", "What", "Details"]}
        nothing="No snapshot, schema change or error in this time span."
        rows={told.map((mark, n) => ({ key: `${mark.at} ${n}`, cells: [<Moment key="at" at={mark.at} />, mark.kind, withNames(mark.text, names)] }))}
      />
      {all.length > MOST ? <Text color="fg.muted" mt={2}>The newest {MOST} of {count(all.length)} are listed.</Text> : null}
    </Box>
  );
}
