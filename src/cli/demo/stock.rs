//! The stock client of the demo: the AWS SDK for Rust at its defaults, as an application would use it, but for proxies. What
//! enters are numbers of objects; what leaves is that they were written or read, and that every byte was right.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_s3::primitives::ByteStream;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Objects;
use crate::client::error::chain;
use crate::load::content;

/// The SDK's client and what it works on.
#[derive(Clone)]
pub struct Stock {
    client: aws_sdk_s3::Client,
    objects: Arc<Objects>,
}

impl Stock {
    /// A client of the S3 endpoint at `url`.
    pub fn new(url: &str, access_key: &str, secret_key: &str, objects: Arc<Objects>) -> Self {
        // Its own client reads HTTP_PROXY and the like, and nobody else's proxy reaches this machine's loopback.
        let direct = aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::AwsLc)).build_https();
        let config = aws_sdk_s3::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(direct)
            .endpoint_url(url)
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new(access_key, secret_key, None, None, "demo"))
            .force_path_style(true)
            .build();
        Self { client: aws_sdk_s3::Client::from_conf(config), objects }
    }

    /// Makes the bucket and writes every object, `workers` at a time.
    pub async fn write(&self, workers: usize) -> Result<(), String> {
        let bucket = self.client.create_bucket().bucket(self.objects.bucket).send().await;
        bucket.map_err(|e| format!("the bucket cannot be made: {}", chain(&e)))?;
        let next = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..workers {
            let (stock, next) = (self.clone(), Arc::clone(&next));
            tasks.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= stock.objects.count {
                        return Ok::<(), String>(());
                    }
                    stock.put(number).await?;
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.map_err(|e| e.to_string())??;
        }
        Ok(())
    }

    /// GETs, `workers` at a time, each reading one object after another, until `time` is over. Says how many were read.
    pub async fn read(&self, workers: usize, time: Duration) -> Result<u64, String> {
        let next = Arc::new(AtomicU64::new(0));
        let end = Instant::now() + time;
        let mut tasks = JoinSet::new();
        for _ in 0..workers {
            let (stock, next) = (self.clone(), Arc::clone(&next));
            tasks.spawn(async move {
                let mut read = 0;
                while Instant::now() < end {
                    stock.get(next.fetch_add(1, Ordering::Relaxed) % stock.objects.count).await?;
                    read += 1;
                }
                Ok::<u64, String>(read)
            });
        }
        let mut read = 0;
        while let Some(done) = tasks.join_next().await {
            read += done.map_err(|e| e.to_string())??;
        }
        Ok(read)
    }

    async fn put(&self, number: u64) -> Result<(), String> {
        let key = self.objects.keys.key(number);
        let body = ByteStream::from(content::whole(number, self.objects.size));
        let put = self.client.put_object().bucket(self.objects.bucket).key(&key).body(body).send().await;
        put.map(drop).map_err(|e| format!("{key} cannot be written: {}", chain(&e)))
    }

    async fn get(&self, number: u64) -> Result<(), String> {
        let key = self.objects.keys.key(number);
        let answer = self.client.get_object().bucket(self.objects.bucket).key(&key).send().await;
        let answer = answer.map_err(|e| format!("{key} cannot be read: {}", chain(&e)))?;
        let body = answer.body.collect().await.map_err(|e| format!("{key} breaks off: {}", chain(&e)))?;
        let body = body.into_bytes();
        if body.len() as u64 == self.objects.size && content::is(number, 0, &body) {
            Ok(())
        } else {
            Err(format!("{key} has other bytes than were written"))
        }
    }
}
