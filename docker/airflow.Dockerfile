# syntax=docker/dockerfile:1.7
# Airflow with this provider, installed from the checkout, and what a driver in client mode needs: Java, Spark, its jars.
FROM apache/airflow:3.3.2-python3.11

USER root
# The whole JDK: a cut-down Java may lack jdk.incubator.vector, without which Spark 4 does not start.
ENV JAVA_HOME=/opt/java/openjdk
COPY --from=eclipse-temurin:17.0.15_6-jdk-jammy /opt/java/openjdk /opt/java/openjdk
ENV PATH="/opt/java/openjdk/bin:${PATH}"

# Spark's Kafka connector, baked in: no download when a stream starts. Executors get it from the driver.
ADD --chmod=644 --checksum=sha256:33a3b8b04df4a2e43c9d5bf8ca5972936a1ac662f2714e014d00ef6f27468bf3 \
    https://repo1.maven.org/maven2/org/apache/spark/spark-sql-kafka-0-10_2.13/4.0.0/spark-sql-kafka-0-10_2.13-4.0.0.jar \
    /opt/spark-kafka/
ADD --chmod=644 --checksum=sha256:f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767 \
    https://repo1.maven.org/maven2/org/apache/spark/spark-token-provider-kafka-0-10_2.13/4.0.0/spark-token-provider-kafka-0-10_2.13-4.0.0.jar \
    /opt/spark-kafka/
ADD --chmod=644 --checksum=sha256:15c1e137f2c2c94398e27abc4060a03b6bde10bf9fac15e8f70c02320b202f18 \
    https://repo1.maven.org/maven2/org/apache/kafka/kafka-clients/3.9.0/kafka-clients-3.9.0.jar \
    /opt/spark-kafka/
ADD --chmod=644 --checksum=sha256:6d3bd18df8410f3e31b031aca582cc109342358a62a2759ebd0c4cdf30d06f8b \
    https://repo1.maven.org/maven2/org/apache/commons/commons-pool2/2.12.0/commons-pool2-2.12.0.jar \
    /opt/spark-kafka/

# A named volume takes owner and mode from the folder that it is mounted on first.
RUN chmod 755 /opt/spark-kafka \
    && mkdir -p /opt/checkpoints /opt/airflow/auth /opt/airflow/streams \
    && chown 50000:0 /opt/checkpoints /opt/airflow/auth /opt/airflow/streams \
    && chmod 2775 /opt/checkpoints \
    && chmod 700 /opt/airflow/auth /opt/airflow/streams
USER airflow

COPY --chown=airflow:0 pyproject.toml README.md LICENSE /opt/airflow-ckpt/
COPY --chown=airflow:0 airflow_ckpt /opt/airflow-ckpt/airflow_ckpt
COPY --chown=airflow:0 spark /opt/airflow-ckpt/spark

# The versions of uv.lock. pyspark and pyspark-client share a folder: their versions must be equal.
RUN pip install --no-cache-dir \
        apache-airflow==3.3.2 \
        apache-airflow-providers-apache-kafka==2.1.0 \
        apache-airflow-providers-apache-spark==6.3.4 \
        confluent-kafka==2.16.1 \
        numpy==2.4.6 \
        pandas==3.1.1 \
        pyarrow==26.0.1 \
        pyspark==4.0.0 \
        pyspark-client==4.0.0 \
        xxhash==4.1.0 \
        /opt/airflow-ckpt
