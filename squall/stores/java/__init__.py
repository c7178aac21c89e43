"""File systems that Hadoop's client reaches, in a JVM with Spark's classes (the extra `spark`).

| file | contents |
|---|---|
| `hadoop` | `Files` through Hadoop's client |
| `steady` | stores of a process that share a JVM, which is started again when it ends |
| `jvm` | starts a JVM |
| `java` | which Java and which PySpark there must be |
| `java_calls` | errors of calls to Java |
| `java_settings` | names of settings |
"""
