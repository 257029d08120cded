import { Alert, Box, Button, Checkbox, Field, Heading, HStack, Input, Link as Anchor, NativeSelect, RadioGroup, Text, Textarea } from "@chakra-ui/react";
import { useEffect, useMemo, useState, type ReactNode } from "react";
import { Link } from "react-router-dom";

import { part, type Offers, type SourceAnswer, type WrittenDefinition } from "./api";
import { Failure, ROOT, Section, Shown } from "./bits";
import { Findings } from "./CheckTab";
import { Copied } from "./copied";
import { Long, shortened } from "./long";
import { count } from "./texts";
import { useAsked } from "./useAsked";
import { useLook } from "./useLook";

const SHOWN = 300;

/** From a connection to a checked definition. Nothing is kept here: what comes out is a text to put under version control. */
export function WizardPage() {
  const asked = useAsked<Offers>("wizard");
  return (
    <>
      <Anchor asChild variant="underline">
        <Link to={ROOT}>CDC connectors</Link>
      </Anchor>
      <Heading as="h1" size="xl" my={2}>
        New connector
      </Heading>
      <Text>Your choices become a definition to copy. The wizard stores nothing, and changes nothing at the source.</Text>
      <Shown asked={asked}>{(offers) => <Steps offers={offers} />}</Shown>
    </>
  );
}

function Steps({ offers }: { offers: Offers }) {
  const [connId, setConnId] = useState("");
  const [chosenKind, setChosenKind] = useState(offers.sources[0]?.kind ?? "");
  const known = offers.connections.find((one) => one.conn_id === connId);
  const source = offers.sources.find(({ kind }) => kind === (known?.kind ?? chosenKind));
  const [tables, setTables] = useState<string[]>([]);
  const [listed, setListed] = useState<string[]>([]);
  const [given, setGiven] = useState<Record<string, string>>({});
  const [chosenMode, setMode] = useState("initial");
  const [name, setName] = useState("");
  const [changelog, setChangelog] = useState("/data/changelog");
  const [target, setTarget] = useState("delta");
  const [location, setLocation] = useState("/data/lake/{database}/{table}");
  const [database, setDatabase] = useState("");
  const made = useLook<WrittenDefinition>("wizard/definition");
  const choose = (id: string) => {
    setConnId(id);
    setTables([]);
    setListed([]);
  };
  const into = target === "database" ? { database: database || "warehouse" } : target === "none" ? {} : { location };
  const modes = Object.entries(source?.modes ?? {});
  const kind = known?.kind ?? source?.kind ?? "";
  const places = Object.fromEntries((source?.places ?? []).flatMap(({ name: place }) => (given[place] ? [[place, given[place]]] : [])));
  const chosen = new Set(tables);
  const leftOut = tables.length > 0 ? listed.filter((one) => !chosen.has(one)) : [];
  const mode = modes.some(([value]) => value === chosenMode) ? chosenMode : (modes[0]?.[0] ?? "initial");
  const wanted = { source: kind, name, conn_id: connId, tables, left_out: leftOut, properties: places, mode, changelog, target, ...into };
  return (
    <>
      <Section title="1. Connection">
        <Choice label="Connection" value={known ? connId : ""} onChoose={choose}>
          <option value="">Other connection, by id</option>
          {offers.connections.map((one) => (
            <option key={one.conn_id} value={one.conn_id}>
              {shortened(one.conn_id, 80)} ({shortened(one.kind, 40)})
            </option>
          ))}
        </Choice>
        {known ? null : (
          <HStack gap={3} mt={2} flexWrap="wrap" alignItems="flex-end">
            <Entry label="Id of the connection" value={connId} onChange={choose} />
            <Choice label="Kind of source" value={chosenKind} onChoose={setChosenKind}>
              {offers.sources.map((one) => (
                <option key={one.kind} value={one.kind}>{shortened(one.kind, 80)}</option>
              ))}
            </Choice>
            <Text>
              Or create one <Anchor asChild variant="underline"><Link to="/connections">in Airflow</Link></Anchor>, with the type <Long text={source?.connection_type ?? ""} />.
            </Text>
          </HStack>
        )}
        {(source?.places ?? []).length > 0 ? (
          <Box mt={3}>
            <Text mb={1}>The connection does not define the input. Set one of these properties:</Text>
            {source?.places.map(({ name: place, description, example }) => (
              <Field.Root key={place} mb={2} maxW="40rem">
                <Field.Label>{place}</Field.Label>
                <Input value={given[place] ?? ""} placeholder={example} onChange={(e) => setGiven({ ...given, [place]: e.target.value.trim() })} />
                <Field.HelperText>{description}</Field.HelperText>
              </Field.Root>
            ))}
          </Box>
        ) : null}
      </Section>
      {connId ? (
        <Tables key={connId} connId={connId} places={places} chosen={tables} onChoose={setTables} onList={setListed} />
      ) : (
        <Section title="2. Prerequisites and tables">
          <Text color="fg.muted">Choose a connection first. The wizard can then check the source and list its tables.</Text>
        </Section>
      )}
      {modes.length > 0 ? (
        <Section title="3. Snapshot mode">
          <RadioGroup.Root value={mode} onValueChange={({ value }) => setMode(value ?? "initial")} aria-label="Snapshot mode">
            {modes.map(([value, what]) => (
              <RadioGroup.Item key={value} value={value} display="flex" mb={1}>
                <RadioGroup.ItemHiddenInput />
                <RadioGroup.ItemIndicator />
                <RadioGroup.ItemText>
                  <Long text={value} />: <Long text={what} />
                </RadioGroup.ItemText>
              </RadioGroup.Item>
            ))}
          </RadioGroup.Root>
        </Section>
      ) : null}
      <Section title="4. Change log and target">
        <HStack gap={3} flexWrap="wrap" alignItems="flex-end">
          <Entry label="Name of the connector (cannot be changed later)" value={name} onChange={setName} />
          <Entry label="Change log: folder or s3://…" value={changelog} onChange={setChangelog} />
          <Choice label="Target" value={target} onChoose={setTarget}>
            {Object.entries(offers.targets).map(([value, what]) => (
              <option key={value} value={value}>
                {shortened(what, 80)}
              </option>
            ))}
          </Choice>
          {target === "delta" || target === "iceberg" ? <Entry label="Location of the tables" value={location} onChange={setLocation} /> : null}
          {target === "database" ? <Entry label="Connection to the database" value={database} onChange={setDatabase} /> : null}
        </HStack>
      </Section>
      <Section title="5. Definition">
        <Button size="sm" loading={made.busy} disabled={!connId || !name} onClick={() => void made.look(wanted)}>
          Write the definition
        </Button>
        {!connId || !name ? <Text color="fg.muted" mt={1}>Required: {[...(connId ? [] : ["a connection"]), ...(name ? [] : ["a name for the connector"])].join(" and ")}.</Text> : null}
        <Box mt={3} aria-live="polite">
          {made.error ? <Failure error={made.error} /> : null}
          {made.data && made.of !== JSON.stringify(wanted) ? <Stale text="Your choices have changed since this definition was written: write it again." /> : null}
          {made.data ? <Written found={made.data} /> : null}
        </Box>
      </Section>
    </>
  );
}

function Stale({ text }: { text: string }) {
  return (
    <Alert.Root status="warning" mb={2} data-testid="stale">
      <Alert.Indicator />
      <Alert.Title>{text}</Alert.Title>
    </Alert.Root>
  );
}

/** The check, and the tables to choose from: the source is asked when somebody wants it. Who may not ask, or whose source is away, writes names by hand. */
function Tables({ connId, places, chosen, onChoose, onList }: { connId: string; places: Record<string, string>; chosen: string[]; onChoose: (tables: string[]) => void; onList: (tables: string[]) => void }) {
  const { data, error, busy, look } = useLook<SourceAnswer>(`wizard/connections/${part(connId)}`);
  const [text, setText] = useState("");
  const [checked, setChecked] = useState<{ places: string; tables: Set<string> } | undefined>(undefined);
  useEffect(() => onList(data?.tables ?? []), [data, onList]);
  const known = useMemo(() => new Set(data?.tables), [data]);
  const keyless = useMemo(() => new Set(data?.keyless), [data]);
  const among = new Set(chosen);
  const fitting = [...chosen.filter((one) => !known.has(one)), ...known].filter((table) => table.toLowerCase().includes(text.toLowerCase()));
  const toggle = (table: string) => onChoose(among.has(table) ? chosen.filter((one) => one !== table) : [...chosen, table]);
  const check = () => {
    setChecked({ places: JSON.stringify(places), tables: new Set(chosen) });
    void look({ places, tables: chosen });
  };
  // a check without a choice was of all tables
  const beyond = checked !== undefined && checked.tables.size > 0 && (chosen.length === 0 || chosen.some((one) => !checked.tables.has(one)));
  const stale = beyond || (checked !== undefined && checked.places !== JSON.stringify(places));
  return (
    <Section title="2. Prerequisites and tables">
      <Button size="sm" loading={busy} loadingText="Querying the source" onClick={check}>
        Check, and list the tables
      </Button>
      <Box mt={3} aria-live="polite">
        {error ? <Failure error={error} /> : null}
        {data && !data.queried ? <Text>Only workers can read these files. The first run checks the prerequisites, and tables appear with their events.</Text> : null}
        {data && stale ? <Stale text="Your choices have changed since this check: check again." /> : null}
        {data?.queried ? <Findings found={{ ready: data.ready, findings: data.findings, position: null, waiting: null }} /> : null}
      </Box>
      {data?.queried ? (
        <Box mt={3}>
          <HStack gap={3} mb={2} flexWrap="wrap">
            <Input aria-label="Search tables" placeholder="Search tables" maxW="20rem" value={text} onChange={(e) => setText(e.target.value)} />
            <Button size="xs" variant="outline" onClick={() => onChoose([...new Set([...chosen, ...fitting])])}>
              Choose all {count(fitting.length)}
            </Button>
            <Button size="xs" variant="outline" onClick={() => onChoose([])}>
              Choose none
            </Button>
            <Text color="fg.muted" aria-live="polite">
              {count(chosen.length)} of {count(data.total)} chosen{chosen.length === 0 ? "; if none is chosen, all are captured" : ""}
            </Text>
          </HStack>
          <Box role="group" aria-label="Tables" maxH="20rem" overflowY="auto" tabIndex={0} borderWidth="1px" borderRadius="md" p={2}>
            {fitting.slice(0, SHOWN).map((table) => (
              <Checkbox.Root key={table} display="flex" checked={among.has(table)} onCheckedChange={() => toggle(table)}>
                <Checkbox.HiddenInput />
                <Checkbox.Control />
                <Checkbox.Label overflowWrap="anywhere" unicodeBidi="isolate">
                  {shortened(table, 200)}
                  {keyless.has(table) ? " (no key: stored as a multiset)" : ""}
                </Checkbox.Label>
              </Checkbox.Root>
            ))}
            {data.total > data.tables.length ? <Text color="fg.muted">The source has {count(data.total)} tables; only {count(data.tables.length)} are listed. Add the names of others to the definition.</Text> : null}
            {fitting.length > SHOWN ? <Text color="fg.muted">And {count(fitting.length - SHOWN)} more: search for them.</Text> : null}
          </Box>
        </Box>
      ) : (
        <Field.Root mt={3} maxW="40rem">
          <Field.Label>Or enter the names of tables, one per line; if empty, all are captured</Field.Label>
          <Textarea rows={3} defaultValue={chosen.join("\n")} onChange={(e) => onChoose(e.target.value.split("\n").map((one) => one.trim()).filter(Boolean))} />
        </Field.Root>
      )}
    </Section>
  );
}

export function Written({ found }: { found: WrittenDefinition }) {
  const [form, setForm] = useState<"python" | "yaml">("python");
  const file = form === "python" ? found.python_file : found.yaml_file;
  return (
    <Box data-testid="definition">
      {found.lacks.length > 0 ? (
        <Alert.Root status="warning" mb={2}>
          <Alert.Indicator />
          <Alert.Title>Fill in before the first run: <Long text={found.lacks.join("; ")} /></Alert.Title>
        </Alert.Root>
      ) : null}
      <HStack gap={2} mb={2} role="group" aria-label="Format">
        {(["python", "yaml"] as const).map((one) => (
          <Button key={one} size="xs" variant={one === form ? "solid" : "outline"} aria-pressed={one === form} onClick={() => setForm(one)}>
            {one === "python" ? "Python" : "YAML"}
          </Button>
        ))}
      </HStack>
      <Text>
        Save it as <Long text={file} /> {form === "python" ? "in the DAG folder, then unpause its DAG." : "in the folder that a DAG file passes to cdc_dags(), then unpause its DAG."}
      </Text>
      <Copied text={found[form]} label="the definition" />
    </Box>
  );
}

function Entry({ label, value, onChange }: { label: string; value: string; onChange: (text: string) => void }) {
  return (
    <Field.Root w="20rem">
      <Field.Label>{label}</Field.Label>
      <Input value={value} onChange={(e) => onChange(e.target.value)} />
    </Field.Root>
  );
}

function Choice(props: { label: string; value: string; onChoose: (value: string) => void; children: ReactNode }) {
  return (
    <Field.Root w="20rem">
      <Field.Label>{props.label}</Field.Label>
      <NativeSelect.Root>
        <NativeSelect.Field value={props.value} onChange={(e) => props.onChoose(e.target.value)}>
          {props.children}
        </NativeSelect.Field>
        <NativeSelect.Indicator />
      </NativeSelect.Root>
    </Field.Root>
  );
}
