import { Code, Heading, Link as Anchor, Text } from "@chakra-ui/react";
import { Link, useParams } from "react-router-dom";

import { part, type BatchDetail } from "./api";
import { Failure, Grid, ROOT, Section, Shown } from "./bits";
import { ago, bytes, count, position } from "./texts";
import { useAsked } from "./useAsked";

/** One batch: from where to where, its files, the statements in it. */
export function BatchPage() {
  const { connector = "", batch = "" } = useParams();
  const path = `connectors/${part(connector)}`;
  const asked = useAsked<BatchDetail>(`${path}/batches/${part(batch)}`);
  return (
    <>
      <Anchor asChild>
        <Link to={`${ROOT}/${path}/batches`}>{connector}</Link>
      </Anchor>
      <Heading as="h1" size="xl" my={2}>
        Batch {batch}
      </Heading>
      <Shown asked={asked}>
        {(found) => (
          <>
            <Text>
              Committed {ago(found.batch.created_at)}; {count(found.batch.events)} events, {bytes(found.batch.bytes)}; seq {count(found.batch.first_seq)} to {count(found.batch.last_seq)}
            </Text>
            <Text>
              From <Code>{position(found.position_before)}</Code> to <Code>{position(found.batch.position)}</Code>
            </Text>
            <Text>
              Manifest <Code>{found.batch.manifest}</Code>
            </Text>
            {found.trouble ? <Failure error={new Error(`The manifest cannot be read from here: ${found.trouble}`)} /> : null}
            <Section title="Files">
              <Grid
                label="Files"
                head={["File", "Topic", "Schema version", "Rows", "Size", "Operations"]}
                nothing="It has no event, only schema changes."
                rows={found.files.map((file) => ({
                  key: file.path,
                  cells: [file.path.split("/").at(-1), file.topic, file.schema_version, count(file.rows), bytes(file.bytes), Object.entries(file.counts).map(([letter, n]) => `${letter} ${count(n)}`).join(", ")],
                }))}
              />
            </Section>
            {found.statements.length > 0 ? (
              <Section title="Schema changes">
                {found.statements.map((ddl, n) => (
                  <Code key={n} as="pre" display="block" whiteSpace="pre-wrap" p={2} mb={1}>
                    {ddl}
                  </Code>
                ))}
              </Section>
            ) : null}
          </>
        )}
      </Shown>
    </>
  );
}
