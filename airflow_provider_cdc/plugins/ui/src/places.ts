/** The tabs of a connector's page, by their place in the address. */
export const TABS = {
  charts: "Charts",
  tables: "Tables",
  signals: "Snapshots and signals",
  schema: "Schema",
  batches: "Batches",
  offsets: "Offsets",
  check: "Check",
  configuration: "Configuration",
  events: "Events",
  row: "Row history",
} as const;
