import { Box } from "@chakra-ui/react";
import { Route, Routes } from "react-router-dom";

import { BatchPage } from "./BatchPage";
import { ConnectorPage } from "./ConnectorPage";
import { OverviewPage } from "./OverviewPage";
import { WizardPage } from "./WizardPage";

/** Names of any length break where they have to, and widen nothing. */
const ANYWHERE = { "& *": { overflowWrap: "anywhere" } };

/** The pages; Airflow's UI shows them at /plugin/cdc. */
export function App() {
  return (
    <Box p={3} data-testid="cdc" css={ANYWHERE}>
      <Routes>
        <Route index element={<OverviewPage />} />
        <Route path="new" element={<WizardPage />} />
        <Route path="connectors/:connector/batches/:batch" element={<BatchPage />} />
        <Route path="connectors/:connector/:tab?" element={<ConnectorPage />} />
      </Routes>
    </Box>
  );
}
