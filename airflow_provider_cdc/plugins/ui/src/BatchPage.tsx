import { Box, Heading, Link as Anchor, Text } from "@chakra-ui/react";
import { Link, useParams } from "react-router-dom";

import { part, type BatchDetail } from "./api";
import { Failure, Grid, ROOT, Section, Shown } from "./bits";
import { Exact, Long, shortened } from "./long";
import { bytes, count } from "./texts";
import { useAsked } from "./useAsked";
import { Position, When } from "./When";

const OPERATIONS: Record<string, string> = { r: "read", c: "created", u: "updated", d: "deleted", t: "truncated" };

/** One batch: from where to where, its files, the statements in it. */
export function BatchPage() {
  const { connector = "", batch = "" } = useParams();
  const path = `connectors/${part(connector)}`;
  const asked = useAsked<BatchDetail>(`${path}/batches/${part(batch)}`);
  return (
    <>
      <Anchor asChild variant="underline">
        <Link to={`${ROOT}/${path}/batches`}><bdi>{shortened(connector, 300)}</bdi></Link>
      </Anchor>
      <Heading as="h1" size="xl" my={2}>
        Batch <Long text={batch} />
      </Heading>
      <Shown asked={asked}>
        {(found) => (
          <>
            <Text>
              Committed <When at={found.batch.created_at} />; {count(found.batch.events)} events, {bytes(found.batch.bytes)}; seq {count(found.batch.first_seq)} to {count(found.batch.last_seq)}
            </Text>
            <Text>
              From <Position of={found.position_before} /> to <Position of={found.batch.position} />
            </Text>
            <Text>
              Manifest <Exact text={found.batch.manifest} />{found.writer ? <>, written by <Long text={found.writer} /></> : null}
            </Text>
            {found.trouble ? <Failure error={new Error(`The API server cannot read the manifest: ${found.trouble}`)} /> : null}
            <Section title="Files">
              <Grid
                label="Files"
                head={["File", "Topic", "Schema version", "Rows", "Size", "Operations"]}
                nothing="The batch has no events, only schema changes."
                rows={found.files.map((file) => ({
                  key: file.path,
                  cells: [file.path.split("/").at(-1) ?? "", file.topic, file.schema_version, count(file.rows), bytes(file.bytes), Object.entries(file.counts).map(([letter, n]) => `${count(n)} ${OPERATIONS[letter] ?? letter}`).join(", ")],
                }))}
              />
            </Section>
            {found.statements.length > 0 ? (
              <Section title="Schema changes">
                {found.statements.map((ddl, n) => (
                  <Box key={n} mb={2}>
                    <Exact text={ddl} most={2000} />
                  </Box>
                ))}
              </Section>
            ) : null}
          </>
        )}
      </Shown>
    </>
  );
}
