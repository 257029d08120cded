import { Button, HStack, Menu, Portal } from "@chakra-ui/react";
import { useRef } from "react";

import type { Choice } from "./choices";
import { shortened } from "./long";

type Chosen = (choice: Choice, by?: HTMLElement | null) => void;

/** A button for each action, and a menu with those that people use seldom. Each opens the plan of its action; those that the user may not do are missing. */
export function ActionButtons({ choices, seldom = [], onChoose }: { choices: Choice[]; seldom?: Choice[]; onChoose: Chosen }) {
  return choices.length + seldom.length === 0 ? null : (
    <HStack gap={2} flexWrap="wrap">
      {choices.map((one) => (
        <Button key={one.title} size="xs" variant="outline" maxW="full" whiteSpace="normal" overflowWrap="anywhere" h="auto" minH={8} py={1} onClick={() => onChoose(one)}>
          {shortened(one.title, 80)}
        </Button>
      ))}
      {seldom.length ? <MoreActions choices={seldom} onChoose={onChoose} /> : null}
    </HStack>
  );
}

function MoreActions({ choices, onChoose }: { choices: Choice[]; onChoose: Chosen }) {
  const trigger = useRef<HTMLButtonElement>(null);
  // the menu gives the focus back to its button first, and the dialog takes it from there
  const choose = (one: Choice) => window.setTimeout(() => onChoose(one, trigger.current), 0);
  return (
    <Menu.Root positioning={{ placement: "bottom-end" }}>
      <Menu.Trigger asChild>
        <Button ref={trigger} size="xs" variant="outline" minH={8}>
          More actions <span aria-hidden="true">▾</span>
        </Button>
      </Menu.Trigger>
      <Portal>
        <Menu.Positioner>
          <Menu.Content maxW="24rem" data-testid="more-actions">
            {choices.map((one) => (
              <Menu.Item key={one.title} value={one.title} color={one.administers ? "red.fg" : undefined} overflowWrap="anywhere" onSelect={() => choose(one)}>
                {shortened(one.title, 120)}
              </Menu.Item>
            ))}
          </Menu.Content>
        </Menu.Positioner>
      </Portal>
    </Menu.Root>
  );
}
