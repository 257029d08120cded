import { Alert, Box, Button, Checkbox, CloseButton, Dialog, Field, Input, List, NativeSelect, Portal, Text, Textarea } from "@chakra-ui/react";
import { useState, type ReactNode } from "react";

import type { Choice } from "./choices";
import { ask, exactly, part, type Detail, type Offset, type Plan } from "./api";
import { FollowedRun } from "./AskedFor";
import { Failure } from "./bits";
import { Long, shortened } from "./long";
import { ago, shortPosition } from "./texts";
import { useAsked } from "./useAsked";

type Targets = Detail["targets"];

interface Given {
  reason: string;
  tables: string;
  type: string;
  replace: boolean;
  onSpark: boolean;
  target: number;
  version: string;
  position: string;
}

/** What an action needs to know, then its plan, then the connector's name where something can be lost or repeated, then what becomes of it. */
export function ActionDialog(props: { connector: string; chosen: Choice; targets: Targets; onClose: () => void; onDone: () => void }) {
  const { connector, chosen, targets, onClose, onDone } = props;
  const written = chosen.position ? JSON.stringify(chosen.position, null, 2) : "{}";
  const [given, setGiven] = useState<Given>({ reason: "", tables: "", type: "incremental", replace: false, onSpark: false, target: 0, version: "", position: written });
  const [confirm, setConfirm] = useState("");
  const [planned, setPlanned] = useState<{ plan: Plan; body: Record<string, unknown> } | undefined>(undefined);
  const [error, setError] = useState<Error | undefined>(undefined);
  const [busy, setBusy] = useState(false);
  const send = async (planOnly: boolean) => {
    setBusy(true);
    setError(undefined);
    try {
      // what is done is what the plan was about, whatever was typed while it was made
      const body = planned ? planned.body : bodyOf(chosen, given, targets);
      const version = chosen.moves && planned ? { at_version: planned.plan.version ?? null } : {};
      const query = new URLSearchParams({ plan: String(planOnly), ...(confirm ? { confirm } : {}), ...(planned?.plan.about ? { about: planned.plan.about } : {}) });
      const found = await ask<Plan>(`connectors/${part(connector)}/actions/${chosen.action}?${query}`, undefined, { ...body, ...version });
      setPlanned({ plan: found, body });
      if (found.done) {
        onDone();
      }
    } catch (e) {
      setError(e as Error);
    }
    setBusy(false);
  };
  const again = () => {
    setPlanned(undefined);
    setConfirm("");
    setError(undefined);
  };
  const plan = planned?.plan;
  const open = plan !== undefined && !plan.done;
  const doing = open && busy; // who closed it now would not see what becomes of it
  return (
    <Dialog.Root open onOpenChange={(change) => (change.open || doing ? undefined : onClose())} scrollBehavior="inside">
      <Portal>
        <Dialog.Backdrop />
        <Dialog.Positioner>
          <Dialog.Content data-testid="action">
            <Dialog.Header>
              <Dialog.Title overflowWrap="anywhere" pe={6}>
                {shortened(chosen.title, 300)}: <Long text={connector} />
              </Dialog.Title>
            </Dialog.Header>
            <Dialog.Body display="flex" flexDirection="column" gap={3}>
              {plan ? <Planned connector={connector} plan={plan} /> : <Wanted connector={connector} chosen={chosen} targets={targets} given={given} onGiven={(more) => setGiven({ ...given, ...more })} />}
              {open && plan.confirm && !plan.obstacle ? (
                <Field.Root>
                  <Field.Label>To confirm, type the connector's name</Field.Label>
                  <Input value={confirm} autoComplete="off" onChange={(e) => setConfirm(e.target.value)} />
                </Field.Root>
              ) : null}
              {error ? <Failure error={error} /> : null}
            </Dialog.Body>
            <Dialog.Footer flexWrap="wrap">
              <Button variant="outline" disabled={doing} onClick={onClose}>
                {plan?.done ? "Close" : "Cancel"}
              </Button>
              {open ? (
                <Button variant="outline" disabled={doing} onClick={again}>
                  Back
                </Button>
              ) : null}
              {plan === undefined ? (
                <Button loading={busy} loadingText="Preparing the plan" disabled={chosen.version && !given.version} onClick={() => void send(true)}>
                  Show the plan
                </Button>
              ) : null}
              {open && !plan.obstacle ? (
                <Button loading={busy} colorPalette={plan.confirm ? "red" : undefined} disabled={plan.confirm && confirm !== connector} onClick={() => void send(false)} whiteSpace="normal" h="auto" minH={9} maxW="full" overflowWrap="anywhere">
                  {chosen.title}
                </Button>
              ) : null}
            </Dialog.Footer>
            <Dialog.CloseTrigger asChild>
              <CloseButton size="sm" disabled={doing} />
            </Dialog.CloseTrigger>
          </Dialog.Content>
        </Dialog.Positioner>
      </Portal>
    </Dialog.Root>
  );
}

/** What is sent. */
function bodyOf(chosen: Choice, given: Given, targets: Targets): Record<string, unknown> {
  const target = targets[given.target];
  return {
    ...chosen.body,
    reason: given.reason,
    ...(chosen.tables ? { tables: given.tables.split("\n").map((t) => t.trim()).filter(Boolean) } : {}),
    ...(chosen.reads ? { type: given.type, replace: given.replace, on_spark: given.onSpark && given.type === "blocking" } : {}),
    ...(chosen.target ? { target: target?.target, location: target?.location } : {}),
    ...(chosen.version ? { version: Number(given.version) } : {}),
    ...(chosen.position !== undefined ? { position: written(given.position) } : {}),
  };
}

function written(text: string): unknown {
  try {
    return exactly(text);
  } catch (e) {
    throw new Error(`The position is not valid JSON: ${(e as Error).message}`);
  }
}

function Planned({ connector, plan }: { connector: string; plan: Plan }) {
  return (
    <>
      <Text fontWeight="semibold" aria-live="polite">
        {plan.done ? `${plan.run ? "A run has started" : "Done"}${plan.signal ? `: signal ${plan.signal} was sent` : ""}.` : "The plan:"}
      </Text>
      {plan.run && plan.dag ? <FollowedRun connector={connector} dag={plan.dag} run={plan.run} /> : null}
      <List.Root ps={5} gap={1}>
        {plan.lines.map((line) => (
          <List.Item key={line} overflowWrap="anywhere" unicodeBidi="isolate">
            {line}
          </List.Item>
        ))}
      </List.Root>
      {plan.dag && !plan.done ? <Text color="fg.muted" overflowWrap="anywhere">A run of {plan.dag} executes this action.</Text> : null}
      {plan.obstacle ? (
        <Alert.Root status="warning" data-testid="obstacle">
          <Alert.Indicator />
          <Alert.Content>
            <Alert.Title>The action is not possible now</Alert.Title>
            <Text overflowWrap="anywhere">{plan.obstacle}</Text>
          </Alert.Content>
        </Alert.Root>
      ) : null}
    </>
  );
}

function Wanted({ connector, chosen, targets, given, onGiven }: { connector: string; chosen: Choice; targets: Targets; given: Given; onGiven: (more: Partial<Given>) => void }) {
  return (
    <>
      {chosen.target ? (
        <Select label="Target" value={String(given.target)} onChange={(value) => onGiven({ target: Number(value) })}>
          {targets.map((one, n) => (
            <option key={`${one.target} ${one.location}`} value={n}>
              {shortened(one.name, 80)}
            </option>
          ))}
        </Select>
      ) : null}
      {chosen.version ? <VersionChoice connector={connector} chosen={given.version} onChoose={(version) => onGiven({ version })} /> : null}
      {chosen.position !== undefined ? (
        <Field.Root>
          <Field.Label>Position in the source's log, as JSON</Field.Label>
          <Textarea rows={Math.min(12, given.position.split("\n").length + 1)} fontFamily="mono" fontSize="sm" spellCheck={false} value={given.position} onChange={(e) => onGiven({ position: e.target.value })} />
          <Field.HelperText>The position in the source's own format. The field starts with the current position; the offset history uses the same format.</Field.HelperText>
        </Field.Root>
      ) : null}
      {chosen.tables ? (
        <Field.Root>
          <Field.Label>{`Tables, or regular expressions, one per line${chosen.tables === "any" ? "; if empty, all tables" : ""}`}</Field.Label>
          <Textarea rows={2} fontFamily="mono" fontSize="sm" spellCheck={false} value={given.tables} onChange={(e) => onGiven({ tables: e.target.value })} />
        </Field.Root>
      ) : null}
      {chosen.reads ? (
        <>
          <Select label="Snapshot type" value={given.type} onChange={(type) => onGiven({ type })}>
            <option value="incremental">In chunks, beside the stream</option>
            <option value="blocking">As a whole; changes wait until it is complete</option>
          </Select>
          <Checkbox.Root checked={given.replace} onCheckedChange={(e) => onGiven({ replace: e.checked === true })}>
            <Checkbox.HiddenInput />
            <Checkbox.Control />
            <Checkbox.Label>Empty the target tables first</Checkbox.Label>
          </Checkbox.Root>
          {given.type === "blocking" ? (
            <Checkbox.Root checked={given.onSpark} onCheckedChange={(e) => onGiven({ onSpark: e.checked === true })}>
              <Checkbox.HiddenInput />
              <Checkbox.Control />
              <Checkbox.Label>Read by executors of Spark</Checkbox.Label>
            </Checkbox.Root>
          ) : null}
        </>
      ) : null}
      <Field.Root>
        <Field.Label>Reason (it is recorded)</Field.Label>
        <Input value={given.reason} onChange={(e) => onGiven({ reason: e.target.value })} />
      </Field.Root>
    </>
  );
}

function Select({ label, value, onChange, children }: { label: string; value: string; onChange: (value: string) => void; children: ReactNode }) {
  return (
    <Field.Root>
      <Field.Label>{label}</Field.Label>
      <NativeSelect.Root>
        <NativeSelect.Field value={value} onChange={(e) => onChange(e.target.value)} textOverflow="ellipsis">
          {children}
        </NativeSelect.Field>
        <NativeSelect.Indicator />
      </NativeSelect.Root>
    </Field.Root>
  );
}

/** The offsets that the connector has had, newest first. */
function VersionChoice({ connector, chosen, onChoose }: { connector: string; chosen: string; onChoose: (version: string) => void }) {
  const { data, error } = useAsked<Offset[]>(`connectors/${part(connector)}/offsets?limit=1000`);
  const earlier = (data ?? []).slice(1);
  return (
    <Box>
      {error ? <Failure error={error} /> : null}
      <Select label="Offset to restore" value={chosen} onChange={onChoose}>
        <option value="">{data ? (earlier.length ? "Choose one" : "No earlier offset") : "…"}</option>
        {earlier.map((one) => (
          <option key={one.version} value={one.version}>
            {one.version}, {ago(one.created_at)}: {shortPosition(one.offset.position as Record<string, unknown>)[0]}
          </option>
        ))}
      </Select>
    </Box>
  );
}
