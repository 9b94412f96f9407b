# syntax=docker/dockerfile:1.7
# A Spark standalone cluster out of the pyspark wheel, as the tests run one. Not from apache/spark: its Python is 3.10, the
# library needs 3.11, and driver and executors must have the same minor version.
FROM python:3.11.13-slim-bookworm

# The whole JDK: a cut-down Java may lack jdk.incubator.vector, without which Spark 4 does not start.
ENV JAVA_HOME=/opt/java/openjdk
COPY --from=eclipse-temurin:17.0.15_6-jdk-jammy /opt/java/openjdk /opt/java/openjdk
ENV PATH="/opt/java/openjdk/bin:${PATH}"

# The versions of uv.lock. `ckpt_stream` itself is sent along by Airflow.
RUN pip install --no-cache-dir \
        pyspark==4.0.0 \
        confluent-kafka==2.16.1 \
        numpy==2.4.6 \
        pandas==3.1.1 \
        pyarrow==26.0.1 \
        xxhash==4.1.0 \
    && ln -s "$(python3 -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')" /opt/spark
ENV SPARK_HOME=/opt/spark

# The same user and group as in Airflow's image: driver and executors write to the same checkpoint.
RUN useradd --uid 50000 --gid 0 --create-home airflow \
    && mkdir -p /opt/checkpoints /opt/spark-work \
    && chown 50000:0 /opt/checkpoints /opt/spark-work \
    && chmod 2775 /opt/checkpoints
USER 50000:0
WORKDIR /opt/spark-work
