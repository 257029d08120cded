import { Box, Input, Link as Anchor, Text } from "@chakra-ui/react";
import { useState, type ReactNode } from "react";
import { Link } from "react-router-dom";

import type { Batch, Configuration, Detail, Event, Offset, SchemaChange, Signal, Tables } from "./api";
import { Grid, ROOT, Shown, State } from "./bits";
import { Exact, Long } from "./long";
import { Position, When } from "./When";
import { Older, useNewest, type Newest } from "./newest";
import { bytes, count, duration, value } from "./texts";
import { useAsked } from "./useAsked";

const EVERY_S = 10;
/** Tables that are shown at once. */
const MOST_TABLES = 300;

interface Of {
  path: string;
}

/** The newest entries, and a way to older ones. */
function Listed<T>({ newest, children }: { newest: Newest<T>; children: (found: T[]) => ReactNode }) {
  return (
    <>
      <Shown asked={newest.asked}>{children}</Shown>
      <Older of={newest} />
    </>
  );
}

export function TablesTab({ path, names }: Of & { names: Record<string, string> }) {
  const [text, setText] = useState("");
  const called = ({ target, place }: { target: string; place: string }) => names[`apply ${target} ${place}`]?.replace("apply to ", "") ?? target;
  const asked = useAsked<Tables>(`${path}/tables`, EVERY_S);
  const fitting = (asked.data?.tables ?? []).filter((one) => one.table.toLowerCase().includes(text.toLowerCase()));
  return (
    <Shown asked={asked}>
      {({ tables }) => (
        <>
          <Input aria-label="Search tables" placeholder="Search tables" maxW="20rem" mb={2} value={text} onChange={(e) => setText(e.target.value)} />
          <Grid
            label="Tables"
            head={["Table", "Key", "Schema version", "Events", "Rows read", "Snapshot", "Targets: freshness p50 / p95", "Last verification"]}
            nothing={tables.length ? "No table matches." : "No table was captured yet."}
            rows={fitting.slice(0, MOST_TABLES).map((one) => ({
              key: one.table,
              cells: [
                one.table, one.key.join(", ") || "none", one.version, count(one.events), count(one.rows_read),
                one.pending ? "pending" : one.chunk_rows !== null ? `${count(one.chunk_rows)} rows so far` : "",
                (one.targets ?? []).map((t) => <Text key={`${t.target} ${t.place}`}><Long text={called(t)} />: {duration(t.freshness_p50_s)} / {duration(t.freshness_p95_s)}</Text>),
                one.comparisons?.length ? one.comparisons.map((c) => <Compared key={`${c.target} ${c.place}`} found={c} target={called(c)} />) : <Text key="never" color="fg.muted">never</Text>,
              ],
            }))}
          />
          {fitting.length > MOST_TABLES ? <Text color="fg.muted" mt={2}>And {count(fitting.length - MOST_TABLES)} more: search for them.</Text> : null}
        </>
      )}
    </Shown>
  );
}

function Compared({ found, target }: { found: NonNullable<Tables["tables"][number]["comparisons"]>[number]; target: string }) {
  const rows = [[found.missing, "missing"], [found.surplus, "surplus"], [found.different, "different"]] as const;
  const words = rows.filter(([n]) => n > 0).map(([n, what]) => `${count(n)} ${what}`);
  return (
    <Text color={found.equal ? undefined : "red.fg"}>
      <Long text={target} />: {found.equal ? "equal" : words.join(", ") || "differs"}, <When at={found.at} />
    </Text>
  );
}

export function SignalsTab({ path }: Of) {
  const newest = useNewest<Signal>(`${path}/signals`, 50, 3);
  return (
    <Listed newest={newest}>
      {(signals) => (
        <Grid
          label="Signals"
          head={["Number", "Type", "Data", "Sent", "State", "Result"]}
          nothing="No signal was sent."
          rows={signals.map((one) => ({
            key: String(one.number),
            cells: [one.number, one.type, <Exact key="data" text={one.data ?? ""} />, <Text key="sent"><When at={one.received_at} />, <Long text={`${one.channel}${one.sent_by ? `, ${one.sent_by}` : ""}`} /></Text>, <State key="state" word={one.state} />, one.message || progress(one.progress)],
          }))}
        />
      )}
    </Listed>
  );
}

const progress = (found: Signal["progress"]) => Object.entries(found ?? {}).map(([name, n]) => `${name} ${value(n)}`).join(", ");

export function SchemaTab({ path }: Of) {
  const newest = useNewest<SchemaChange>(`${path}/schema-changes`, 50, 3 * EVERY_S);
  return (
    <Listed newest={newest}>
      {(changes) => (
        <Grid
          label="Schema changes"
          head={["When", "Changes", "Statement", "Position"]}
          nothing="No schema was recorded yet."
          rows={changes.map((one) => ({
            key: String(one.number),
            cells: [
              <When key="at" at={one.at} />,
              Object.entries(one.tables).map(([table, lines]) => (
                <Box key={table}>
                  <Text fontWeight="semibold"><Long text={table} /></Text>
                  {lines.map((line) => <Text key={line} fontFamily="mono"><Long text={line} /></Text>)}
                </Box>
              )),
              one.snapshot ? "read by a snapshot" : <Exact key="ddl" text={one.statement} />,
              <Position key="position" of={one.position} />,
            ],
          }))}
        />
      )}
    </Listed>
  );
}

export function BatchesTab({ path, targets }: Of & { targets: Detail["targets"] }) {
  const newest = useNewest<Batch>(`${path}/batches`, 100, EVERY_S);
  return (
    <Listed newest={newest}>
      {(batches) => (
        <Grid
          label="Batches"
          head={["Batch", "Committed", "Events", "Size", "Topics", "Applied", "End position"]}
          nothing="No batch was committed yet."
          rows={batches.map((one) => ({
            key: String(one.batch),
            cells: [
              <Anchor asChild key="link"><Link to={`${ROOT}/${path}/batches/${one.batch}`}>{one.batch}</Link></Anchor>,
              <When key="at" at={one.created_at} />, count(one.events), bytes(one.bytes), Object.keys(one.topics).length,
              targets.map((t) => `${t.name}: ${t.last_batch >= one.batch ? "yes" : "not yet"}`).join(", ") || "no target",
              <Position key="position" of={one.position} />,
            ],
          }))}
        />
      )}
    </Listed>
  );
}

export function OffsetsTab({ path }: Of) {
  const newest = useNewest<Offset>(`${path}/offsets`, 50, EVERY_S);
  return (
    <Listed newest={newest}>
      {(offsets) => (
        <Grid
          label="Offsets"
          head={["Version", "Moved", "Reason", "Position", "Batch", "Seq"]}
          nothing="No offset was stored yet."
          rows={offsets.map((one) => ({
            key: String(one.version),
            cells: [one.version, <When key="at" at={one.created_at} />, one.reason, <Position key="position" of={one.offset.position as Record<string, unknown>} />, value(one.offset.batch), value(one.offset.seq)],
          }))}
        />
      )}
    </Listed>
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
            head={["Property", "Value", "Set by", "Description"]}
            nothing="No definition is recorded."
            rows={properties.map((one) => ({
              key: one.name,
              cells: [one.name, one.by === "connection" ? "not shown" : one.secret ? "secret" : <Exact key="value" text={value(one.value) || "none"} />, one.by, one.description],
            }))}
          />
        </>
      )}
    </Shown>
  );
}

export function EventsTab({ path }: Of) {
  const newest = useNewest<Event>(`${path}/events`, 100, EVERY_S);
  return (
    <Listed newest={newest}>
      {(events) => (
        <Grid
          label="Notifications"
          head={["When", "About", "Event", "Details"]}
          nothing="No notifications yet."
          rows={events.map((one) => ({
            key: String(one.number),
            cells: [
              <When key="at" at={one.created_at} />, one.aggregate_type, one.type,
              Object.entries(one.additional_data).filter(([name]) => name !== "connector_name").map(([name, text]) => <Text key={name}><Long text={`${name}: ${text}`} /></Text>),
            ],
          }))}
        />
      )}
    </Listed>
  );
}
