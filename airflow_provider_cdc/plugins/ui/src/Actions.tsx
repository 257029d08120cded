import { Button, HStack } from "@chakra-ui/react";
import { useState } from "react";

import { ActionDialog } from "./ActionDialog";
import type { Choice } from "./choices";
import type { Detail } from "./api";
import { shortened } from "./long";

interface Of {
  connector: string;
  found: Detail;
  /** Something was done, or has begun. */
  onDone: () => void;
}

/** Each button opens the plan of its action. What the user may not do is not among them. */
export function ActionButtons({ choices, ...of }: Of & { choices: Choice[] }) {
  return choices.length === 0 ? null : (
    <HStack mt={3} gap={2} flexWrap="wrap">
      {choices.map((one) => (
        <ActionButton key={one.title} chosen={one} {...of} />
      ))}
    </HStack>
  );
}

export function ActionButton({ chosen, connector, found, onDone }: Of & { chosen: Choice }) {
  // what was chosen stays as it was, whatever the page learns meanwhile
  const [open, setOpen] = useState<Choice | undefined>(undefined);
  return (
    <>
      <Button size="xs" variant="outline" maxW="full" whiteSpace="normal" overflowWrap="anywhere" h="auto" minH={8} py={1} onClick={() => setOpen(chosen)}>
        {shortened(chosen.title, 80)}
      </Button>
      {open ? <ActionDialog connector={connector} chosen={open} targets={found.targets} onClose={() => setOpen(undefined)} onDone={onDone} /> : null}
    </>
  );
}
