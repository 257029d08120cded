import { Box, Input, Link as Anchor, Text } from "@chakra-ui/react";
import { useState } from "react";
import { Link } from "react-router-dom";

import type { Batch, Configuration, Detail, Event, Offset, SchemaChange, Signal, Tables } from "./api";
import { Grid, ROOT, Shown, State } from "./bits";
import { Exact, Long } from "./long";
import { ago, bytes, count, duration, position, value } from "./texts";
import { useAsked } from "./useAsked";

const EVERY_S = 10;

interface Of {
  path: string;
}

export function TablesTab({ path }: Of) {
  const [text, setText] = useState("");
  const asked = useAsked<Tables>(`${path}/tables`, EVERY_S);
  return (
    <Shown asked={asked}>
      {({ tables }) => (
        <>
          <Input aria-label="Search tables" placeholder="Search tables" maxW="20rem" mb={2} value={text} onChange={(e) => setText(e.target.value)} />
          <Grid
            label="Tables"
            head={["Table", "Key", "Schema version", "Events", "Rows read", "Snapshot", "Targets: freshness p50 / p95", "Last comparison with the source"]}
            nothing="No table was captured yet."
            rows={tables
              .filter((one) => one.table.toLowerCase().includes(text.toLowerCase()))
              .slice(0, 500)
              .map((one) => ({
                key: one.table,
                cells: [
                  one.table, one.key.join(", ") || "none", one.version, count(one.events), count(one.rows_read),
                  one.pending ? "to be read" : one.chunk_rows !== null ? `${count(one.chunk_rows)} rows so far` : "",
                  (one.targets ?? []).map((t) => <Text key={t.target + t.place}><Long text={t.target} />: {duration(t.freshness_p50_s)} / {duration(t.freshness_p95_s)}</Text>),
                  one.comparisons?.length ? one.comparisons.map((c) => <Compared key={c.target + c.place} found={c} />) : <Text key="never" color="fg.muted">never</Text>,
                ],
              }))}
          />
        </>
      )}
    </Shown>
  );
}

function Compared({ found }: { found: NonNullable<Tables["tables"][number]["comparisons"]>[number] }) {
  const rows = [[found.missing, "missing"], [found.surplus, "surplus"], [found.different, "different"]] as const;
  const words = rows.filter(([n]) => n > 0).map(([n, what]) => `${count(n)} ${what}`);
  return (
    <Text color={found.equal ? undefined : "red.fg"}>
      <Long text={found.target} />: {found.equal ? "equal" : words.join(", ") || "differs"}, {ago(found.at)}
    </Text>
  );
}

export function SignalsTab({ path }: Of) {
  const asked = useAsked<Signal[]>(`${path}/signals`, 3);
  return (
    <Shown asked={asked}>
      {(signals) => (
        <Grid
          label="Signals"
          head={["Number", "Type", "Data", "Sent", "State", "What became of it"]}
          nothing="No signal was sent."
          rows={signals.map((one) => ({
            key: String(one.number),
            cells: [one.number, one.type, <Exact key="data" text={one.data ?? ""} />, `${ago(one.received_at)}, ${one.channel}${one.sent_by ? `, ${one.sent_by}` : ""}`, <State key="state" word={one.state} />, one.message || progress(one.progress)],
          }))}
        />
      )}
    </Shown>
  );
}

const progress = (found: Signal["progress"]) => Object.entries(found ?? {}).map(([name, n]) => `${name} ${value(n)}`).join(", ");

export function SchemaTab({ path }: Of) {
  const asked = useAsked<SchemaChange[]>(`${path}/schema-changes?limit=200`);
  return (
    <Shown asked={asked}>
      {(changes) => (
        <Grid
          label="Schema changes"
          head={["When", "What has changed", "Statement", "Position"]}
          nothing="No schema was recorded yet."
          rows={changes.map((one) => ({
            key: String(one.seq),
            cells: [
              ago(one.at),
              Object.entries(one.tables).map(([table, lines]) => (
                <Box key={table}>
                  <Text fontWeight="semibold"><Long text={table} /></Text>
                  {lines.map((line) => <Text key={line} fontFamily="mono"><Long text={line} /></Text>)}
                </Box>
              )),
              one.snapshot ? "read by a snapshot" : <Exact key="ddl" text={one.statement} />,
              position(one.position),
            ],
          }))}
        />
      )}
    </Shown>
  );
}

export function BatchesTab({ path, targets }: Of & { targets: Detail["targets"] }) {
  const asked = useAsked<Batch[]>(`${path}/batches?limit=100`, EVERY_S);
  return (
    <Shown asked={asked}>
      {(batches) => (
        <Grid
          label="Batches"
          head={["Batch", "Committed", "Events", "Size", "Topics", "Applied", "Position after it"]}
          nothing="There is no batch yet."
          rows={batches.map((one) => ({
            key: String(one.batch),
            cells: [
              <Anchor asChild key="link"><Link to={`${ROOT}/${path}/batches/${one.batch}`}>{one.batch}</Link></Anchor>,
              ago(one.created_at), count(one.events), bytes(one.bytes), Object.keys(one.topics).length,
              targets.map((t) => `${t.target}: ${t.last_batch >= one.batch ? "yes" : "waits"}`).join(", ") || "no target",
              position(one.position),
            ],
          }))}
        />
      )}
    </Shown>
  );
}

export function OffsetsTab({ path }: Of) {
  const asked = useAsked<Offset[]>(`${path}/offsets`, EVERY_S);
  return (
    <Shown asked={asked}>
      {(offsets) => (
        <Grid
          label="Offsets"
          head={["Version", "Moved", "Why", "Position", "Batch", "Seq"]}
          nothing="There was no offset yet."
          rows={offsets.map((one) => ({
            key: String(one.version),
            cells: [one.version, ago(one.created_at), one.reason, position(one.offset.position as Record<string, unknown>), value(one.offset.batch), value(one.offset.seq)],
          }))}
        />
      )}
    </Shown>
  );
}

export function ConfigurationTab({ path }: Of) {
  const asked = useAsked<Configuration>(`${path}/configuration`);
  return (
    <Shown asked={asked}>
      {({ properties, connections }) => (
        <>
          <Text mb={2}><Long text={Object.entries(connections).map(([what, name]) => `${what}: ${name}`).join("; ")} /></Text>
          <Grid
            label="Properties"
            head={["Property", "Value", "From", "What it does"]}
            nothing="No definition is recorded."
            rows={properties.map((one) => ({
              key: one.name,
              cells: [one.name, one.by === "connection" ? "not shown" : one.secret ? "secret" : <Exact key="value" text={value(one.value) || "none"} />, one.by, one.what],
            }))}
          />
        </>
      )}
    </Shown>
  );
}

export function EventsTab({ path }: Of) {
  const asked = useAsked<Event[]>(`${path}/events?limit=200`, EVERY_S);
  return (
    <Shown asked={asked}>
      {(events) => (
        <Grid
          label="Events"
          head={["When", "About", "What", "Details"]}
          nothing="Nothing has happened yet."
          rows={events.map((one) => ({
            key: String(one.number),
            cells: [
              ago(one.created_at), one.aggregate_type, one.type,
              Object.entries(one.additional_data).filter(([name]) => name !== "connector_name").map(([name, text]) => <Text key={name}><Long text={`${name}: ${text}`} /></Text>),
            ],
          }))}
        />
      )}
    </Shown>
  );
}
