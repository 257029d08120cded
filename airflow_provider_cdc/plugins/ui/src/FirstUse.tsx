import { Box, Button, HStack, Link as Anchor, List, Text } from "@chakra-ui/react";
import { useState } from "react";
import { Link } from "react-router-dom";

import type { Offers } from "./api";
import { ROOT, Shown } from "./bits";
import { Exact, shortened } from "./long";
import { useAsked } from "./useAsked";
import { Written } from "./WizardPage";

/** How to get the first connector, in three steps, for each kind of source. */
export function FirstUse() {
  const asked = useAsked<Offers>("wizard");
  const [chosen, setChosen] = useState("");
  return (
    <Box data-testid="first-use">
      <Text>No connector that you may see has run yet. Create the first one in three steps, or use the <Anchor asChild variant="underline"><Link to={`${ROOT}/new`}>wizard</Link></Anchor>.</Text>
      <Shown asked={asked}>
        {({ sources }) => {
          const source = sources.find(({ kind }) => kind === chosen) ?? sources.find(({ kind }) => kind === "mariadb") ?? sources[0];
          return (
            <>
              <HStack gap={2} my={3} flexWrap="wrap" role="group" aria-label="Kind of source">
                {sources.map(({ kind }) => (
                  <Button key={kind} size="xs" variant={kind === source?.kind ? "solid" : "outline"} aria-pressed={kind === source?.kind} onClick={() => setChosen(kind)}>
                    {shortened(kind, 40)}
                  </Button>
                ))}
              </HStack>
              <List.Root as="ol" ps={6} my={2} gap={1}>
                <List.Item>
                  Create a <Anchor asChild variant="underline"><Link to="/connections">connection</Link></Anchor> of the type <Exact text={source?.connection_type ?? ""} />, and test it. The test lists missing prerequisites.
                </List.Item>
                <List.Item>
                  Check it: <Exact text={`airflow cdc check --conn-id shop_${source?.kind}`} />
                </List.Item>
                <List.Item>Save a DAG with a definition in your DAG folder, and unpause it:</List.Item>
              </List.Root>
              {source ? <Written key={source.kind} found={source.example} /> : null}
            </>
          );
        }}
      </Shown>
    </Box>
  );
}
