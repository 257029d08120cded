import { Button, HStack } from "@chakra-ui/react";

import type { Choice } from "./choices";
import { shortened } from "./long";

/** Each button opens the plan of its action. What the user may not do is not among them. */
export function ActionButtons({ choices, onChoose }: { choices: Choice[]; onChoose: (choice: Choice) => void }) {
  return choices.length === 0 ? null : (
    <HStack mt={3} gap={2} flexWrap="wrap">
      {choices.map((one) => (
        <Button key={one.title} size="xs" variant="outline" maxW="full" whiteSpace="normal" overflowWrap="anywhere" h="auto" minH={8} py={1} onClick={() => onChoose(one)}>
          {shortened(one.title, 80)}
        </Button>
      ))}
    </HStack>
  );
}
