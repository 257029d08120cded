import { Button, Checkbox, CloseButton, Dialog, Field, HStack, Input, List, Portal, Text } from "@chakra-ui/react";
import { useState } from "react";

import { ask, part, type Detail, type Plan } from "./api";
import { Failure } from "./bits";

interface Choice {
  action: string;
  title: string;
  body: Record<string, unknown>;
  /** Tables are to be named. */
  tables?: boolean;
}

/** What the user may do; each button opens the plan of its action. */
export function ActionButtons({ connector, found, onDone }: { connector: string; found: Detail; onDone: () => void }) {
  const [chosen, setChosen] = useState<Choice | undefined>(undefined);
  const halted = found.line.state === "paused" || found.line.state === "stopped";
  const operate: Choice[] = [
    ...(halted ? [{ action: "resume", title: "Resume", body: {} }] : [{ action: "pause", title: "Pause", body: {} }, { action: "stop", title: "Stop", body: {} }]),
    { action: "snapshot", title: "Read tables again", body: {}, tables: true },
    { action: "stop-snapshot", title: "Stop a snapshot", body: {} },
  ];
  const administer: Choice[] = found.targets.map(({ target, location }) => ({ action: "forget-target", title: `Release ${target} at ${location}`, body: { target, location } }));
  const offered = [...(found.rights.includes("operate") ? operate : []), ...(found.rights.includes("administer") ? administer : [])];
  return (
    <HStack mt={3} gap={2} flexWrap="wrap">
      {offered.map((one) => (
        <Button key={one.title} size="xs" variant="outline" onClick={() => setChosen(one)}>
          {one.title}
        </Button>
      ))}
      {chosen ? <Asking key={chosen.title} connector={connector} chosen={chosen} onClose={() => setChosen(undefined)} onDone={onDone} /> : null}
    </HStack>
  );
}

function Asking(props: { connector: string; chosen: Choice; onClose: () => void; onDone: () => void }) {
  const { connector, chosen, onClose, onDone } = props;
  const [reason, setReason] = useState("");
  const [tables, setTables] = useState("");
  const [replace, setReplace] = useState(false);
  const [confirm, setConfirm] = useState("");
  const [plan, setPlan] = useState<Plan | undefined>(undefined);
  const [error, setError] = useState<Error | undefined>(undefined);
  const [busy, setBusy] = useState(false);
  const send = async (planOnly: boolean) => {
    setBusy(true);
    setError(undefined);
    const body = { ...chosen.body, reason, ...(chosen.tables ? { tables: tables.split("\n").map((t) => t.trim()).filter(Boolean), replace } : {}) };
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
                  <Text fontWeight="semibold">{plan.done ? `Done${plan.signal ? `, as signal ${plan.signal}` : ""}.` : "This is what happens:"}</Text>
                  <List.Root ps={5}>
                    {plan.lines.map((line) => (
                      <List.Item key={line}>{line}</List.Item>
                    ))}
                  </List.Root>
                </>
              ) : (
                <>
                  {chosen.tables ? (
                    <>
                      <Field.Root>
                        <Field.Label>Table, or a regular expression for several</Field.Label>
                        <Input value={tables} onChange={(e) => setTables(e.target.value)} />
                      </Field.Root>
                      <Checkbox.Root checked={replace} onCheckedChange={(e) => setReplace(e.checked === true)}>
                        <Checkbox.HiddenInput />
                        <Checkbox.Control />
                        <Checkbox.Label>Empty them in the targets first</Checkbox.Label>
                      </Checkbox.Root>
                    </>
                  ) : null}
                  <Field.Root>
                    <Field.Label>Why (it is recorded)</Field.Label>
                    <Input value={reason} onChange={(e) => setReason(e.target.value)} />
                  </Field.Root>
                </>
              )}
              {planned && plan.confirm ? (
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
                <Button loading={busy} onClick={() => void send(true)}>
                  Show what happens
                </Button>
              ) : null}
              {planned ? (
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
