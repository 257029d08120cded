import { Badge, Box, Button, Checkbox, Field, HStack, Input, Text } from "@chakra-ui/react";
import { useEffect, useState, type FormEvent } from "react";

import { ask, type Change, type Detail, type KeyColumn, type Story, type Tables } from "./api";
import { Failure, Grid, Section } from "./bits";
import { Exact, Long } from "./long";
import { RowNow } from "./RowNow";
import { ago, count, moment, position, value } from "./texts";
import { useAsked } from "./useAsked";
import { useLook } from "./useLook";

/** Targets whose tables are files, which the connector's own storage leads to. */
const LAKES = ["delta", "iceberg"];

/** States of a change at a target that people read by other words. */
const STATES: Record<string, string> = { waits: "not applied yet", unknown: "not known" };

/** Every change of one row, what it is now, or was at a time, at the targets and at the source. Each look is recorded. */
export function RowStory({ path, targets }: { path: string; targets: Detail["targets"] }) {
  const tables = useAsked<Tables>(`${path}/tables`);
  const names = (tables.data?.tables ?? []).map((one) => one.table);
  const [table, setTable] = useState("");
  const [values, setValues] = useState<Record<string, string>>({});
  const [text, setText] = useState("");
  const [asOf, setAsOf] = useState("");
  const [compare, setCompare] = useState(false);
  const [connections, setConnections] = useState("");
  const key = useKey(path, names.includes(table) ? table : "");
  const { data, error, busy, look } = useLook<Story>(`${path}/row`);
  const ofTexts = text.trim().startsWith("{") ? [text.trim()] : split(text);
  const send = (moment: string) => look({ table, key: key.columns ? key.columns.map(({ name }) => values[name] ?? "") : ofTexts, as_of: moment || null, compare, connections: split(connections) });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void send(asOf);
  };
  const asOfThen = (moment: string) => {
    setAsOf(moment);
    void send(moment);
  };
  return (
    <>
      <form onSubmit={submit}>
        <HStack gap={3} my={2} flexWrap="wrap" alignItems="end">
          <Entry label="Table" value={table} onChange={setTable} required list="cdc-tables" />
          <datalist id="cdc-tables">{names.map((name) => <option key={name} value={name} />)}</datalist>
          {key.columns ? (
            key.columns.map(({ name, type, form }) => <Entry key={name} label={`${name} (${type})`} hint={form} value={values[name] ?? ""} onChange={(v) => setValues({ ...values, [name]: v })} />)
          ) : (
            <Entry label="Key: values, or a JSON object" hint="separate several values with commas" value={text} onChange={setText} required />
          )}
          <Entry label="As of, in UTC (empty: now)" type="datetime-local" value={local(asOf)} onChange={(v) => setAsOf(v && `${v}Z`)} />
          {targets.some(({ target }) => !LAKES.includes(target)) ? <Entry label="Connections to target databases" hint="comma-separated; to read the row there" value={connections} onChange={setConnections} /> : null}
        </HStack>
        <HStack gap={3} my={2} flexWrap="wrap">
          <Button type="submit" size="sm" loading={busy} loadingText="Searching the change log" disabled={key.awaited}>
            Look up
          </Button>
          <Checkbox.Root checked={compare} onCheckedChange={(e) => setCompare(e.checked === true)}>
            <Checkbox.HiddenInput />
            <Checkbox.Control />
            <Checkbox.Label>Compare with the source</Checkbox.Label>
          </Checkbox.Root>
          <Text color="fg.muted">Each look-up is recorded: the user, the time and the row.</Text>
        </HStack>
      </form>
      {tables.error ? <Failure error={tables.error} /> : null}
      {key.error && !error ? <Failure error={key.error} /> : null}
      <Box aria-live="polite">
        {error ? <Failure error={error} /> : null}
        {data ? <Told story={data} onAsOf={asOfThen} /> : null}
      </Box>
    </>
  );
}

const split = (text: string) => text.split(",").map((one) => one.trim()).filter(Boolean);

/** As the field for a moment takes it: without a zone, to the millisecond. */
const local = (moment: string) => moment.replace(/(Z|[+-]\d\d:\d\d)$/, "").replace(/(\.\d{3})\d*$/, "$1");

/** The key columns of a table that the connector knows. */
function useKey(path: string, table: string): { columns?: KeyColumn[]; error?: Error; awaited?: boolean } {
  const [found, setFound] = useState<{ table: string; columns?: KeyColumn[]; error?: Error }>({ table: "" });
  useEffect(() => {
    const stop = new AbortController();
    if (table) {
      ask<KeyColumn[]>(`${path}/row/key`, stop.signal, { table }).then(
        (columns) => setFound({ table, columns }),
        (error: Error) => (stop.signal.aborted ? undefined : setFound({ table, error })),
      );
    }
    return () => stop.abort();
  }, [path, table]);
  return !table ? {} : found.table === table ? found : { awaited: true };
}

function Entry(props: { label: string; value: string; onChange: (text: string) => void; hint?: string; required?: boolean; type?: string; list?: string }) {
  const { label, value: held, onChange, hint, required, type, list } = props;
  return (
    <Field.Root w="18rem" maxW="100%">
      <Field.Label>{label}</Field.Label>
      <Input value={held} onChange={(e) => onChange(e.target.value)} required={required} type={type} list={list} placeholder={hint} step={type ? "0.001" : undefined} autoComplete="off" />
    </Field.Root>
  );
}

function Told({ story, onAsOf }: { story: Story; onAsOf: (moment: string) => void }) {
  const changes = story.changes ?? [];
  return (
    <Box data-testid="story">
      <RowNow story={story} />
      {(story.notes ?? []).map((note) => (
        <Text key={note}><Long text={note} /></Text>
      ))}
      <Text color="fg.muted">
        Batches {count(story.first_batch ?? 0)} to {count(story.last_batch ?? 0)} were searched: {changes.length === 0 ? "they contain no change of this row" : `${count(changes.length)} change${changes.length === 1 ? "" : "s"}`}.
      </Text>
      {(story.left_out ?? []).length > 0 ? <Text fontWeight="semibold">The timeout ended before all batches were searched: look the row up again to continue from here.</Text> : null}
      {changes.map((change, n) => (
        <OneChange key={`${change.seq} ${n}`} change={change} onAsOf={onAsOf} />
      ))}
    </Box>
  );
}

const named = (row: Record<string, unknown> | null | undefined) => Object.entries(row ?? {}).map(([name, held]) => `${name}=${held === null ? "NULL" : value(held)}`).join(", ");

function OneChange({ change, onAsOf }: { change: Change; onAsOf: (moment: string) => void }) {
  const images = change.before || change.after;
  const image = (found: Record<string, unknown> | null | undefined, name: string, lacking: string[] | undefined) =>
    !found ? "" : lacking?.includes(name) ? "(not in the log)" : name in found ? <Exact key={name} text={found[name] === null ? "NULL" : value(found[name])} /> : "(left out)";
  const again = change.operation === "truncate" && change.snapshot;
  const times = [
    `captured ${ago(change.captured_at)}`,
    ...(change.batch_at ? [`in the change log ${ago(change.batch_at)}`] : []),
    ...(change.applied ?? []).map((one) => `${one.target} at ${one.location}: ${STATES[one.state] ?? one.state}${one.at ? ` ${one.at_latest ? "at the latest " : ""}${ago(one.at)}` : ""}`),
  ];
  return (
    <Section title={`${again ? "emptied before a snapshot" : change.operation}${change.snapshot && !again ? ` (snapshot: ${change.snapshot})` : ""}, ${moment(change.committed_at)}`}>
      {change.key ? (
        <Text>
          <Long text={`${change.table} ${named(change.key)}`} />
          {change.previous_key ? <>, previously <Long text={named(change.previous_key)} /></> : null}
          {change.next_key ? <>, later <Long text={named(change.next_key)} /></> : null}
        </Text>
      ) : null}
      {images ? (
        <Grid
          label={`Change ${change.seq}`}
          head={["Column", "Before", "After", "Changed"]}
          nothing=""
          rows={(change.columns ?? []).map((name) => ({
            key: name,
            cells: [name, image(change.before, name, change.unavailable_before), image(change.after, name, change.unavailable), (change.changed ?? []).includes(name) ? <Badge key="changed" colorPalette="orange">changed</Badge> : ""],
          }))}
        />
      ) : null}
      {change.statement ? <Exact text={change.statement} /> : null}
      <Text color="fg.muted">
        <Long text={`${position(change.position)}${change.transaction ? `; transaction ${value(change.transaction.id)}, event ${value(change.transaction.total_order)}` : ""}; seq ${count(change.seq)}, batch ${count(change.batch)}`} />
      </Text>
      <Text color="fg.muted"><Long text={times.join("; ")} /></Text>
      <Button size="2xs" variant="outline" mt={1} onClick={() => onAsOf(change.committed_at)}>
        Show the row at this time
      </Button>
    </Section>
  );
}
