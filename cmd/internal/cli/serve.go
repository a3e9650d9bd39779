package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swampd/swampd/cmd/internal/daemon"
	"github.com/swampd/swampd/messages"
)

// serveFlags are the flags of the orchestrator.
type serveFlags struct {
	listen          string
	dataDir         string
	queueTimeout    durationValue
	grace           durationValue
	loopback        choiceValue
	shipEnv         patternsValue
	tlsCert, tlsKey string
	retainRunsFor   durationValue
	retainRuns      countValue
	retainWorkers   durationValue
	shutdownTimeout durationValue
	logLevel        choiceValue
	logFormat       choiceValue
}

// serveCommand is swampd, and swamp serve.
func (a *app) serveCommand(use string) *cobra.Command {
	f := &serveFlags{
		dataDir:         defaultDataDir(a.host),
		queueTimeout:    durationValue{d: time.Minute},
		grace:           durationValue{d: time.Minute, min: time.Second},
		loopback:        choiceValue{"", []string{"on", "off"}},
		retainRunsFor:   durationValue{d: 7 * 24 * time.Hour},
		retainRuns:      countValue{n: 10_000, min: 1, max: math.MaxInt32, word: "unlimited", wordIs: -1},
		retainWorkers:   durationValue{d: 24 * time.Hour},
		shutdownTimeout: durationValue{d: 30 * time.Second, min: time.Second},
		logLevel:        logLevel(),
		logFormat:       choiceValue{"text", []string{"text", "json"}},
	}
	cmd := &cobra.Command{
		Use:   use,
		Short: "Run the orchestrator",
		Long: "Run the orchestrator: it owns workflows, runs, the queue, leases and tokens, and keeps them in one directory.\n\n" +
			"The first start writes the server token of its clients to the file admin-token there. SIGTERM ends it well; a\n" +
			"second signal ends it at once.",
		Example: "  swampd\n" +
			"  swampd --listen 0.0.0.0:4000 --tls-cert tls.crt --tls-key tls.key --data-dir /srv/swampd\n" +
			"  swampd --queue-timeout 0 --ship-env 'CI_*'",
		Args: wants(),
	}
	if a.program == Swamp {
		cmd.Example = strings.ReplaceAll(cmd.Example, "  swampd", "  swamp serve")
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", defaultListen, "`ADDRESS` to listen on, as host:port")
	flags.StringVar(&f.dataDir, "data-dir", f.dataDir, "`DIR` that holds everything; by default $XDG_STATE_HOME/swampd, for root /var/lib/swampd")
	flags.Lookup("data-dir").DefValue = "" // it depends on the machine
	flags.Var(&f.queueTimeout, "queue-timeout", "how long a step waits for a worker, where its workflow does not say; 0 is for ever")
	flags.Var(&f.grace, "grace-window", "how long a lost connection of a worker may take to come back; at least 1s")
	flags.Var(&f.loopback, "loopback", "run steps without a placement in this process; by default on while --listen is a loopback address")
	flags.Var(&f.shipEnv, "ship-env", "send variables of this process to steps, by name with * and ?; repeat, or in the variable separate by commas")
	flags.StringVar(&f.tlsCert, "tls-cert", "", "`FILE` with the TLS certificate, in PEM")
	flags.StringVar(&f.tlsKey, "tls-key", "", "`FILE` with its key, in PEM")
	flags.Var(&f.retainRunsFor, "retain-runs-for", "how long an ended run is kept, with its events and output, and an ended token; 0 is for ever")
	flags.Var(&f.retainRuns, "retain-runs", "how many ended runs are kept, the newest ones")
	flags.Var(&f.retainWorkers, "retain-workers-for", "how long a worker that is disconnected is kept; 0 is for ever")
	flags.Var(&f.shutdownTimeout, "shutdown-timeout", "how long an orderly end may take")
	flags.Var(&f.logLevel, "log-level", "the least that is logged")
	flags.Var(&f.logFormat, "log-format", "how it is logged")
	bindAllEnv(flags, "SWAMPD_")
	flags.Bool(flagPrintConfig, false, "show each value and where it came from, and end")
	return a.command(cmd, func(cmd *cobra.Command, _ []string, from settings) error {
		cfg, err := f.config(a.host, from)
		if err != nil {
			return err
		}
		if err := a.host.hideCredentials(cmd.Flags(), ""); err != nil {
			return err
		}
		return a.serve(cmd.Context(), cfg, f)
	})
}

// config checks what flags have to say to each other.
func (f *serveFlags) config(h *Host, from settings) (daemon.Config, error) {
	host, port, err := net.SplitHostPort(f.listen)
	if n, portErr := strconv.ParseUint(port, 10, 16); err != nil || portErr != nil || n > 65535 {
		return daemon.Config{}, usagef("invalid value %q of %s: want an address as host:port, such as %s", f.listen, from.name("listen"), defaultListen)
	}
	switch {
	case f.dataDir == "":
		return daemon.Config{}, usagef("%s is needed: this user has no home directory", from.name("data-dir"))
	case f.tlsCert == "" && f.tlsKey != "":
		return daemon.Config{}, usagef("%s needs --tls-cert", from.name("tls-key"))
	case f.tlsCert != "" && f.tlsKey == "":
		return daemon.Config{}, usagef("%s needs --tls-key", from.name("tls-cert"))
	}
	dir, err := filepath.Abs(f.dataDir)
	if err != nil {
		return daemon.Config{}, fmt.Errorf("find the data directory: %w", err)
	}
	return daemon.Config{
		Listen:       f.listen,
		DataDir:      dir,
		QueueTimeout: f.queueTimeout.d,
		Grace:        f.grace.d,
		Loopback:     f.loopback.value == "on" || (f.loopback.value == "" && isLoopback(host)),
		ShipEnv:      shippedEnv(h.Environ(), f.shipEnv.patterns),
		TLSCert:      f.tlsCert,
		TLSKey:       f.tlsKey,
		Retention: daemon.Retention{
			Runs: orForEver(f.retainRunsFor.d), MaxRuns: f.retainRuns.n, Workers: orForEver(f.retainWorkers.d),
		},
		Version: version(),
		Logger:  newLogger(h.Stderr, f.logLevel.value, f.logFormat.value),
	}, nil
}

// orForEver is how long something is kept as the orchestrator takes it, where 0 is for ever.
func orForEver(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// shippedEnv returns the variables that a pattern names and that may leave this machine.
func shippedEnv(env, patterns []string) []string {
	var shipped []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if name == "" || messages.DeniedEnv(name) {
			continue
		}
		for _, pattern := range patterns {
			if ok, err := path.Match(pattern, name); err == nil && ok {
				shipped = append(shipped, e)
				break
			}
		}
	}
	slices.Sort(shipped)
	return shipped
}

// serve runs the orchestrator until a signal ends it, or it fails.
func (a *app) serve(ctx context.Context, cfg daemon.Config, f *serveFlags) error {
	defer keepOnBrokenPipe()()
	signals, _ := a.host.Notify(stopSignals()...) // to the end of the process: a late one does not change how it ended
	starting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type startResult struct {
		orchestrator daemon.Orchestrator
		err          error
	}
	started := make(chan startResult, 1)
	go func() { // ends with the start; the process ends where nobody waits for it any more
		o, err := a.host.Engine.Start(starting, cfg)
		started <- startResult{o, err}
	}()
	var o daemon.Orchestrator
	select {
	case s := <-signals:
		cfg.Logger.Info("stopping", messages.KeySignal, s.String())
		cancel(errInterrupted)
		select {
		case result := <-started:
			if result.err != nil {
				return nil // it had not begun: nothing is lost
			}
			o = result.orchestrator
		case s := <-signals: // a large store takes a while to open
			return stoppedAtOnce(cfg.Logger, s)
		}
	case result := <-started:
		if result.err != nil {
			return result.err
		}
		o = result.orchestrator
		select {
		case s := <-signals:
			cfg.Logger.Info("stopping", messages.KeySignal, s.String())
		case <-o.Failed():
			cfg.Logger.Error("stopping after a failure", messages.KeyErr, o.Failure())
		case <-ctx.Done():
			cfg.Logger.Info("stopping")
		}
	}
	return stopOrchestrator(o, cfg.Logger, signals, f.shutdownTimeout.d)
}

// stopOrchestrator ends it within a time. A signal meanwhile ends the process at once.
func stopOrchestrator(o daemon.Orchestrator, log *slog.Logger, signals <-chan os.Signal, limit time.Duration) error {
	stopping, cancel := context.WithTimeoutCause(context.Background(), limit,
		fmt.Errorf("it did not end in %s (--shutdown-timeout)", formatDuration(limit)))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- o.Stop(stopping) }() // the process ends where nobody waits for it any more
	select {
	case err := <-done:
		if failure := o.Failure(); failure != nil {
			return errors.Join(failure, err)
		}
		return err
	case <-stopping.Done():
		return context.Cause(stopping)
	case s := <-signals:
		return stoppedAtOnce(log, s)
	}
}

// stoppedAtOnce is the end by a second signal. What was told is durable, and the rest is owed at the next start.
func stoppedAtOnce(log *slog.Logger, s os.Signal) error {
	log.Error("stopped at once by a second signal", messages.KeySignal, s.String())
	return errFailed
}
