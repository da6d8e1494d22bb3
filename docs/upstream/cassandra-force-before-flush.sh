#!/usr/bin/env bash
# Shows that Cassandra's FileUtils.appendAndSync calls fsync before its line is written.
# Needs Maven, a JDK of 11 or 17, strace. VERSION=5.0.6 by default. Writes nothing but a temporary folder.
set -euo pipefail
version=${VERSION:-5.0.6}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >pom.xml <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>repro</groupId><artifactId>repro</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.cassandra</groupId><artifactId>cassandra-all</artifactId><version>$version</version></dependency>
  </dependencies>
</project>
POM
mvn -q dependency:build-classpath -Dmdep.outputFile=classpath
cat >Repro.java <<'JAVA'
import org.apache.cassandra.io.util.File;
import org.apache.cassandra.io.util.FileUtils;

public class Repro
{
    public static void main(String[] arguments)
    {
        FileUtils.appendAndSync(new File(arguments[0]), "ADD:[/data/nb-1-big-,0,8][1234567890]");
    }
}
JAVA
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
strace -f -y -o trace -e trace=openat,write,fsync,fdatasync "$java" --add-exports java.base/sun.nio.ch=ALL-UNNAMED --add-exports java.base/jdk.internal.ref=ALL-UNNAMED --add-opens java.base/sun.nio.ch=ALL-UNNAMED \
  --add-opens java.base/jdk.internal.ref=ALL-UNNAMED --add-opens java.base/java.io=ALL-UNNAMED -cp "$(cat classpath)" Repro.java "$folder/txn.log" >output 2>&1 || { tail -20 output; exit 1; }
# Only what happens to the log itself.
grep -E 'txn\.log' trace | grep -vE 'execve' | sed -E 's/^[0-9]+ +//; s#[^ "<]*/txn\.log#txn.log#g'
