import { Button, Checkbox, CloseButton, Dialog, Field, HStack, Input, Link as Anchor, List, NativeSelect, Portal, Text, Textarea } from "@chakra-ui/react";
import { useState } from "react";
import { Link } from "react-router-dom";

import { ask, part, type Detail, type Offset, type Plan } from "./api";
import { Failure } from "./bits";
import { ago, position } from "./texts";
import { useAsked } from "./useAsked";

interface Choice {
  action: string;
  title: string;
  body: Record<string, unknown>;
  /** Tables are to be named, or may be. */
  tables?: "named" | "any";
  /** They may be emptied first. */
  replace?: boolean;
  /** A target is to be chosen. */
  target?: boolean;
  /** An earlier offset is to be chosen. */
  version?: boolean;
}

/** What the user may do; each button opens the plan of its action. */
export function ActionButtons({ connector, found, onDone }: { connector: string; found: Detail; onDone: () => void }) {
  const [chosen, setChosen] = useState<Choice | undefined>(undefined);
  const halted = found.line.state === "paused" || found.line.state === "stopped";
  const operate: Choice[] = [
    ...(halted ? [{ action: "resume", title: "Resume", body: {} }] : [{ action: "pause", title: "Pause", body: {} }, { action: "stop", title: "Stop", body: {} }]),
    ...(found.line.dag ? [{ action: "run", title: "Run now", body: {} }] : []),
    { action: "snapshot", title: "Read tables again", body: {}, tables: "named", replace: true },
    { action: "stop-snapshot", title: "Stop a snapshot", body: {} },
    ...(found.targets.length
      ? ([
          { action: "verify", title: "Compare with the source", body: {}, tables: "any", target: true },
          { action: "repair", title: "Compare and repair", body: {}, tables: "any", target: true },
        ] as const)
      : []),
  ];
  const rebuild: Choice[] = found.targets.length ? [{ action: "rebuild", title: "Build tables again", body: {}, tables: "named", target: true }] : [];
  const restore: Choice[] = [{ action: "restore-offset", title: "Go back to an earlier offset", body: {}, version: true }];
  const release: Choice[] = found.targets.map(({ target, location }) => ({ action: "forget-target", title: `Release ${target} at ${location}`, body: { target, location } }));
  const offered = [...(found.rights.includes("operate") ? operate : []), ...(found.rights.includes("administer") ? [...rebuild, ...restore, ...release] : [])];
  return (
    <HStack mt={3} gap={2} flexWrap="wrap">
      {offered.map((one) => (
        <Button key={one.title} size="xs" variant="outline" onClick={() => setChosen(one)}>
          {one.title}
        </Button>
      ))}
      {chosen ? <Asking key={chosen.title} connector={connector} chosen={chosen} targets={found.targets} onClose={() => setChosen(undefined)} onDone={onDone} /> : null}
    </HStack>
  );
}

type Targets = Detail["targets"];

function Asking(props: { connector: string; chosen: Choice; targets: Targets; onClose: () => void; onDone: () => void }) {
  const { connector, chosen, targets, onClose, onDone } = props;
  const [reason, setReason] = useState("");
  const [tables, setTables] = useState("");
  const [replace, setReplace] = useState(false);
  const [target, setTarget] = useState(0);
  const [version, setVersion] = useState("");
  const [confirm, setConfirm] = useState("");
  const [plan, setPlan] = useState<Plan | undefined>(undefined);
  const [error, setError] = useState<Error | undefined>(undefined);
  const [busy, setBusy] = useState(false);
  const send = async (planOnly: boolean) => {
    setBusy(true);
    setError(undefined);
    const body = {
      ...chosen.body,
      reason,
      ...(chosen.tables ? { tables: tables.split("\n").map((t) => t.trim()).filter(Boolean) } : {}),
      ...(chosen.replace ? { replace } : {}),
      ...(chosen.target ? { target: targets[target]?.target, location: targets[target]?.location } : {}),
      ...(chosen.version ? { version: Number(version), at_version: plan?.version ?? null } : {}),
    };
    const query = new URLSearchParams({ plan: String(planOnly), ...(confirm ? { confirm } : {}) });
    try {
      const found = await ask<Plan>(`connectors/${part(connector)}/actions/${chosen.action}?${query}`, undefined, body);
      setPlan(found);
      if (found.done) {
        onDone();
      }
    } catch (e) {
      setError(e as Error);
    }
    setBusy(false);
  };
  const planned = plan !== undefined && !plan.done;
  return (
    <Dialog.Root open onOpenChange={({ open }) => (open ? undefined : onClose())}>
      <Portal>
        <Dialog.Backdrop />
        <Dialog.Positioner>
          <Dialog.Content>
            <Dialog.Header>
              <Dialog.Title>
                {chosen.title}: {connector}
              </Dialog.Title>
            </Dialog.Header>
            <Dialog.Body display="flex" flexDirection="column" gap={3}>
              {plan ? (
                <>
                  <Text fontWeight="semibold">{plan.done ? `${plan.run ? "A run has begun" : "Done"}${plan.signal ? `, as signal ${plan.signal}` : ""}.` : "This is what happens:"}</Text>
                  {plan.run && plan.dag ? (
                    <Anchor asChild variant="underline" overflowWrap="anywhere">
                      <Link to={`/dags/${part(plan.dag)}/runs/${part(plan.run)}`}>{`${plan.dag} ${plan.run}`}</Link>
                    </Anchor>
                  ) : null}
                  <List.Root ps={5}>
                    {plan.lines.map((line) => (
                      <List.Item key={line}>{line}</List.Item>
                    ))}
                  </List.Root>
                  {plan.dag && !plan.done ? <Text color="fg.muted" overflowWrap="anywhere">A run of {plan.dag} does it.</Text> : null}
                  {plan.obstacle ? <Failure error={new Error(plan.obstacle)} /> : null}
                </>
              ) : (
                <>
                  {chosen.target ? <TargetChoice targets={targets} chosen={target} onChoose={setTarget} /> : null}
                  {chosen.version ? <VersionChoice connector={connector} chosen={version} onChoose={setVersion} /> : null}
                  {chosen.tables ? (
                    <>
                      <Field.Root>
                        <Field.Label>{`Tables, or regular expressions for several, one a line${chosen.tables === "any" ? "; none for all" : ""}`}</Field.Label>
                        <Textarea rows={2} value={tables} onChange={(e) => setTables(e.target.value)} />
                      </Field.Root>
                      {chosen.replace ? <Checkbox.Root checked={replace} onCheckedChange={(e) => setReplace(e.checked === true)}>
                        <Checkbox.HiddenInput />
                        <Checkbox.Control />
                        <Checkbox.Label>Empty them in the targets first</Checkbox.Label>
                      </Checkbox.Root> : null}
                    </>
                  ) : null}
                  <Field.Root>
                    <Field.Label>Why (it is recorded)</Field.Label>
                    <Input value={reason} onChange={(e) => setReason(e.target.value)} />
                  </Field.Root>
                </>
              )}
              {planned && plan.confirm && !plan.obstacle ? (
                <Field.Root>
                  <Field.Label>To confirm, type the connector's name</Field.Label>
                  <Input value={confirm} onChange={(e) => setConfirm(e.target.value)} />
                </Field.Root>
              ) : null}
              {error ? <Failure error={error} /> : null}
            </Dialog.Body>
            <Dialog.Footer>
              <Button variant="outline" onClick={onClose}>
                {plan?.done ? "Close" : "Cancel"}
              </Button>
              {plan === undefined ? (
                <Button loading={busy} disabled={chosen.version && !version} onClick={() => void send(true)}>
                  Show what happens
                </Button>
              ) : null}
              {planned && !plan.obstacle ? (
                <Button loading={busy} colorPalette={plan.confirm ? "red" : undefined} disabled={plan.confirm && confirm !== connector} onClick={() => void send(false)}>
                  {chosen.title}
                </Button>
              ) : null}
            </Dialog.Footer>
            <Dialog.CloseTrigger asChild>
              <CloseButton size="sm" />
            </Dialog.CloseTrigger>
          </Dialog.Content>
        </Dialog.Positioner>
      </Portal>
    </Dialog.Root>
  );
}

function TargetChoice({ targets, chosen, onChoose }: { targets: Targets; chosen: number; onChoose: (n: number) => void }) {
  return (
    <Field.Root>
      <Field.Label>Target</Field.Label>
      <NativeSelect.Root>
        <NativeSelect.Field value={chosen} onChange={(e) => onChoose(Number(e.target.value))}>
          {targets.map((one, n) => (
            <option key={`${one.target} ${one.location}`} value={n}>
              {one.target} at {one.location}
            </option>
          ))}
        </NativeSelect.Field>
        <NativeSelect.Indicator />
      </NativeSelect.Root>
    </Field.Root>
  );
}

/** The offsets that the connector has had, newest first. */
function VersionChoice({ connector, chosen, onChoose }: { connector: string; chosen: string; onChoose: (version: string) => void }) {
  const { data, error } = useAsked<Offset[]>(`connectors/${part(connector)}/offsets?limit=200`);
  return (
    <Field.Root>
      <Field.Label>Offset to go back to</Field.Label>
      {error ? <Failure error={error} /> : null}
      <NativeSelect.Root>
        <NativeSelect.Field value={chosen} onChange={(e) => onChoose(e.target.value)}>
          <option value="">{data ? "Choose one" : "…"}</option>
          {(data ?? []).slice(1).map((one) => (
            <option key={one.version} value={one.version}>
              {one.version}, {ago(one.created_at)}: {position(one.offset.position as Record<string, unknown>)}
            </option>
          ))}
        </NativeSelect.Field>
        <NativeSelect.Indicator />
      </NativeSelect.Root>
    </Field.Root>
  );
}
