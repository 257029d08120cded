"""The Spark jobs, each started by a script of ``spark_jobs/``, and the arguments that they parse."""
