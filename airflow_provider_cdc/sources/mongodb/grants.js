// MongoDB: the capture account, for mongosh. The options --account and --database replace cdc and shop.
// Explanations: docs/sources/mongodb.md. `airflow cdc check --conn-id …` finds what is missing.

// === account ===
db.getSiblingDB("admin").createUser({user: "cdc", pwd: passwordPrompt(), roles: [{role: "readAnyDatabase", db: "admin"}]})

// === account of one database ===
// enough for capture.scope=database and capture.scope=collection
db.getSiblingDB("admin").createUser({user: "cdc", pwd: passwordPrompt(), roles: [{role: "read", db: "shop"}]})

// === oplog ===
// optional: shows how far back the oplog goes, and warns before the position is lost
db.getSiblingDB("admin").grantRolesToUser("cdc", [{role: "read", db: "local"}])

// === signal collection ===
// optional: watermarks of incremental snapshots
db.getSiblingDB("admin").grantRolesToUser("cdc", [{role: "readWrite", db: "shop"}])

// === remove ===
db.getSiblingDB("admin").dropUser("cdc")
