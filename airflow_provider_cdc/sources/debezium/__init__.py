"""Change events that some Debezium has written as JSON: lines of files, or records of Kafka topics.

feed       what both give: lines, each with the position behind it
files      lines of files          topics     records of Kafka topics
lines      lines → records; schemas are parsed once, however often they are repeated
shapes     what a record is        columns    Connect schemas → columns
inferred   types of values without a schema
values     JSON values → Arrow arrays
plans      how the rows of a topic are read under the schema in force
events     records → log items
"""
