package gateway

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
)

// maxRequirements is how many requirements have a series of their own; the rest is summed up as otherRequirement.
const (
	maxRequirements  = 200
	otherRequirement = "other"
)

// newRuntimeRegistry holds what is known of the process itself. The default registry belongs to whoever links a library
// that writes to it.
func newRuntimeRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// metrics answers with one snapshot of the orchestrator, and the numbers of the process.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), metricsTimeout)
	defer cancel()
	m, err := s.orchestrator.Metrics(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = messages.Faultf(messages.CodeUnavailable, "the orchestrator gave no numbers within %s", metricsTimeout)
		}
		s.fail(w, err)
		return
	}
	numbers := prometheus.NewRegistry()
	numbers.MustRegister(snapshot(series(m)))
	promhttp.HandlerFor(prometheus.Gatherers{numbers, s.runtime}, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// snapshot is a collector of numbers that are known already.
type snapshot []prometheus.Metric

// Describe implements prometheus.Collector. Without descriptions the registry checks the metrics as they come.
func (snapshot) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s snapshot) Collect(out chan<- prometheus.Metric) {
	for _, m := range s {
		out <- m
	}
}

// series makes the snapshot metrics. Every status has one, so that a graph shows a zero and not a gap; a requirement has
// one while something waits for it.
func series(m actors.Metrics) []prometheus.Metric {
	var all []prometheus.Metric
	add := func(kind prometheus.ValueType, name, help, label, value string, number float64) {
		var labels, values []string
		if label != "" {
			labels, values = []string{label}, []string{value}
		}
		all = append(all, prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, labels, nil), kind, number, values...))
	}
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	for _, w := range waiting(m.Waiting) {
		add(gauge, "swamp_queue_waiting", "Steps that wait for a worker, by what they require of it.", "requirement", w.requirement, float64(w.steps))
	}
	for _, status := range workerStatuses() {
		add(gauge, "swamp_workers", "Known workers, by status.", "status", string(status), float64(m.Workers[status]))
	}
	add(gauge, "swamp_slots_free", "Free slots of workers that may be given work.", "", "", float64(m.SlotsFree))
	add(gauge, "swamp_slots_total", "Slots of workers that may be given work.", "", "", float64(m.SlotsTotal))
	add(gauge, "swamp_runs_live", "Runs that have not ended.", "", "", float64(m.RunsLive))
	for _, status := range messages.AllRunStatuses() {
		if status.Ended() {
			add(counter, "swamp_runs_ended_total", "Runs that ended, by status.", "status", string(status), float64(m.RunsEnded[status]))
		}
	}
	for _, status := range messages.AllStepStatuses() {
		if status.Ended() {
			add(counter, "swamp_steps_ended_total", "Steps that ended, by status.", "status", string(status), float64(m.StepsEnded[status]))
		}
	}
	for _, cause := range drainCauses() {
		add(counter, "swamp_worker_drains_total", "Drains of workers that began, by reason.", "reason", cause, float64(m.Drains[cause]))
	}
	add(counter, "swamp_actor_restarts_total", "Actors that were restarted after a panic.", "", "", float64(m.Restarts))
	add(counter, "swamp_book_findings_total", "Places where the auditor found that the books disagree: each is a fault of swampd.", "", "", float64(m.Findings))
	add(counter, "swamp_journal_commits_total", "Commits of the journal.", "", "", float64(m.Commits))
	add(counter, "swamp_journal_syncs_total", "Syncs of the journal: many commits share one.", "", "", float64(m.Syncs))
	add(counter, "swamp_journal_sync_seconds_total", "Time spent in syncs of the journal.", "", "", m.SyncTime.Seconds())
	return all
}

// waitingFor is one series of the queue.
type waitingFor struct {
	requirement string
	steps       int
}

// waiting returns the queue with the longest lines first, at most maxRequirements of them and one for the rest.
func waiting(queue map[string]int) []waitingFor {
	valid := make(map[string]int, len(queue))
	for requirement, steps := range queue {
		valid[strings.ToValidUTF8(requirement, "�")] += steps
	}
	all := make([]waitingFor, 0, len(valid))
	for _, requirement := range slices.Sorted(maps.Keys(valid)) {
		all = append(all, waitingFor{requirement, valid[requirement]})
	}
	slices.SortStableFunc(all, func(a, b waitingFor) int { return cmp.Compare(b.steps, a.steps) })
	if len(all) <= maxRequirements {
		return all
	}
	other := waitingFor{requirement: otherRequirement}
	for _, w := range all[maxRequirements:] {
		other.steps += w.steps
	}
	return append(all[:maxRequirements:maxRequirements], other)
}

func workerStatuses() []messages.WorkerStatus {
	return []messages.WorkerStatus{
		messages.WorkerDisconnected, messages.WorkerDraining, messages.WorkerPaused, messages.WorkerUnhealthy,
		messages.WorkerUnverified, messages.WorkerBusy, messages.WorkerIdle,
	}
}

// drainCauses are the reasons of a drain: those for which a worker stops, and one for all others.
func drainCauses() []string {
	return []string{"drained", "forced", "idle_timeout", "max_dispatches", "max_uptime", "signal", "other"}
}
