//! Writes the metrics of [`super::table`] for one snapshot, through prometheus-client.

use std::{fmt, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{
        CounterValueEncoder, DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabel, EncodeLabelSet,
        GaugeValueEncoder, LabelSetEncoder, MetricEncoder, NoLabelSet, prometheus_text, text,
    },
    registry::Registry,
};

use super::{
    Format, MetricsContext, MetricsError,
    table::{METRICS, Metric, MetricKind},
};
use crate::model::{
    drift::Drift,
    sample::EventCounts,
    snapshot::{CacheView, SlabState, Snapshot},
    waste::{Part, Waterfall, cache_waste, total_waste},
};

/// Bytes to reserve for a series and for everything that is not of a cache, so that the text does not grow by copying.
const BYTES_PER_SERIES: usize = 80;
const BYTES_WITHOUT_CACHES: usize = 16 << 10;

/// The exposition in `format`.
///
/// # Errors
/// [`MetricsError::Encode`] if a value cannot be written, which is a defect.
pub fn encode(format: Format, snapshot: &Arc<Snapshot>, context: &MetricsContext) -> Result<String, MetricsError> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(SnapshotCollector { snapshot: snapshot.clone(), context: context.clone() }));
    let mut exposition =
        String::with_capacity(BYTES_WITHOUT_CACHES + context.series.kept_series.min(1 << 20) * BYTES_PER_SERIES);
    match format {
        Format::Text => prometheus_text::encode(&mut exposition, &registry)?,
        Format::OpenMetrics => text::encode(&mut exposition, &registry)?,
    }
    Ok(exposition)
}

/// The exposition in Prometheus text 0.0.4.
///
/// # Errors
/// See [`encode`].
pub fn encode_text(snapshot: &Arc<Snapshot>, context: &MetricsContext) -> Result<String, MetricsError> {
    encode(Format::Text, snapshot, context)
}

/// The exposition in OpenMetrics 1.0.0.
///
/// # Errors
/// See [`encode`].
pub fn encode_openmetrics(snapshot: &Arc<Snapshot>, context: &MetricsContext) -> Result<String, MetricsError> {
    encode(Format::OpenMetrics, snapshot, context)
}

#[derive(Debug)]
struct SnapshotCollector {
    snapshot: Arc<Snapshot>,
    context: MetricsContext,
}

impl Collector for SnapshotCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let source = Source::new(&self.snapshot, &self.context);
        METRICS.iter().try_for_each(|metric| (metric.write)(&source, &mut Family::new(metric, &mut encoder)))
    }
}

/// What the table's functions read.
pub(super) struct Source<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) context: &'a MetricsContext,
    /// The caches that get series.
    caches: Vec<&'a CacheView>,
    /// Of all caches together; `None` without slabinfo.
    pub(super) waterfall: Option<Waterfall>,
}

impl<'a> Source<'a> {
    fn new(snapshot: &'a Snapshot, context: &'a MetricsContext) -> Self {
        let caches = snapshot.caches.iter().filter(|cache| context.series.keeps(&cache.name)).collect();
        let waterfall = snapshot.memory.caches_bytes.map(|_| total_waste(snapshot));
        Self { snapshot, context, caches, waterfall }
    }

    /// Writes a counter of every traced cache.
    pub(super) fn write_counts(&self, family: &mut Family, count: impl Fn(&EventCounts) -> u64) -> fmt::Result {
        for cache in &self.caches {
            family.write_some(&[&cache.name], cache.traced.map(|traced| count(&traced.counts)))?;
        }
        Ok(())
    }

    /// Writes a figure of every cache that slabinfo has, where it is known.
    pub(super) fn write_slabs(&self, family: &mut Family, figure: impl Fn(&SlabState) -> Option<u64>) -> fmt::Result {
        for cache in &self.caches {
            family.write_some(&[&cache.name], cache.slab.as_ref().and_then(&figure))?;
        }
        Ok(())
    }
}

impl Source<'_> {
    /// Writes the known parts of the waste of the caches that get them.
    pub(super) fn write_waste(&self, family: &mut Family) -> fmt::Result {
        let kept = self.caches.iter().filter(|cache| self.context.series.keeps_details(&cache.name));
        for (cache, waste) in kept.filter_map(|cache| Some((cache, cache_waste(cache)?))) {
            for part in Part::WASTE {
                family.write_some(&[&cache.name, part.as_str()], waste.waterfall.part_bytes(part))?;
            }
        }
        Ok(())
    }
}

impl Source<'_> {
    /// Writes a figure of the drift of the caches that get it, where it is known.
    pub(super) fn write_drift<V: Into<Value>>(
        &self,
        family: &mut Family,
        figure: impl Fn(&Drift) -> Option<V>,
    ) -> fmt::Result {
        for cache in self.caches.iter().filter(|cache| self.context.series.keeps_details(&cache.name)) {
            family.write_some(
                &[&cache.name],
                cache.traced.and_then(|traced| traced.drift).and_then(|drift| figure(&drift)),
            )?;
        }
        Ok(())
    }
}

/// One metric and its samples. HELP and TYPE are written before the first sample, so that a metric without samples
/// leaves no trace.
pub(super) struct Family<'e, 'd> {
    metric: &'static Metric,
    /// Until the first sample.
    descriptor: Option<&'e mut DescriptorEncoder<'d>>,
    /// From then on.
    encoder: Option<MetricEncoder<'e>>,
}

impl<'e, 'd> Family<'e, 'd> {
    fn new(metric: &'static Metric, descriptor: &'e mut DescriptorEncoder<'d>) -> Self {
        Self { metric, descriptor: Some(descriptor), encoder: None }
    }

    /// Writes one sample; `labels` are the values of the metric's labels, in the table's order.
    pub(super) fn write(&mut self, labels: &[&str], value: impl Into<Value>) -> fmt::Result {
        let metric = self.metric;
        if let Some(descriptor) = self.descriptor.take() {
            let unit = metric.unit.map(|unit| unit.encoded());
            self.encoder =
                Some(descriptor.encode_descriptor(metric.stem(), metric.help, unit, metric.kind.encoded())?);
        }
        let encoder = self.encoder.as_mut().ok_or(fmt::Error)?;
        let labels = Labels { names: metric.labels, values: labels };
        let value = value.into();
        match metric.kind {
            MetricKind::Counter => encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None),
            MetricKind::Gauge => encoder.encode_family(&labels)?.encode_gauge(&value),
            MetricKind::Info => encoder.encode_info(&labels),
        }
    }

    /// Writes one sample if its value is known.
    pub(super) fn write_some(&mut self, labels: &[&str], value: Option<impl Into<Value>>) -> fmt::Result {
        value.map_or(Ok(()), |value| self.write(labels, value))
    }
}

/// Label names from the table with the values of one sample.
struct Labels<'a> {
    names: &'static [&'static str],
    values: &'a [&'a str],
}

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder) -> fmt::Result {
        if self.names.len() != self.values.len() {
            return Err(fmt::Error);
        }
        self.names.iter().zip(self.values).try_for_each(|(&name, &value)| (name, value).encode(encoder.encode_label()))
    }
}

/// A sample's value; integers are written digit by digit, never through a float.
pub(super) enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Unsigned(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Signed(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl EncodeGaugeValue for Value {
    fn encode(&self, encoder: &mut GaugeValueEncoder) -> fmt::Result {
        match self {
            Self::Unsigned(value) => EncodeGaugeValue::encode(value, encoder),
            Self::Signed(value) => value.encode(encoder),
            Self::Float(value) => EncodeGaugeValue::encode(value, encoder),
        }
    }
}

impl EncodeCounterValue for Value {
    fn encode(&self, encoder: &mut CounterValueEncoder) -> fmt::Result {
        match self {
            Self::Unsigned(value) => EncodeCounterValue::encode(value, encoder),
            // A counter never goes below zero.
            Self::Signed(value) => EncodeCounterValue::encode(&u64::try_from(*value).map_err(|_| fmt::Error)?, encoder),
            Self::Float(value) => EncodeCounterValue::encode(value, encoder),
        }
    }
}
