package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/swampd/swampd/cmd/internal/daemon"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/worker"
)

// connectFlags are the flags of a worker.
type connectFlags struct {
	token       secretValue
	tokenFile   string
	tokenFD     int
	labels      labelsValue
	concurrency *countValue
	life        *lifeFlags
	cacheDir    string
	noReconnect bool
	logLevel    choiceValue
}

// The variable of the one argument, and the other name under which people look for that of --label.
const (
	envOrchestratorURL = "SWAMP_ORCHESTRATOR_URL"
	envWorkerLabel     = "SWAMP_WORKER_LABEL"
	envWorkerLabels    = "SWAMP_WORKER_LABELS"
)

// connectCommand is swamp-worker, and swamp worker connect.
func (a *app) connectCommand(name string) *cobra.Command {
	f := &connectFlags{concurrency: concurrencyValue(), life: newLifeFlags(), logLevel: logLevel()}
	f.cacheDir, _ = worker.DefaultCacheDir() // without one the flag is needed
	cmd := &cobra.Command{
		Use:   name + " URL",
		Short: "Run a worker",
		Long: "Run a worker: it dials the orchestrator at URL (http, https, ws or wss, without a path), enrolls with a token,\n" +
			"and runs the steps that it is given. URL may stand in the variable " + envOrchestratorURL + ".\n\n" +
			"The first SIGTERM, SIGINT or SIGHUP drains it: it finishes what it runs, takes nothing new, and ends with 0. A\n" +
			"second one kills its steps and ends it with 1. The flags below make it drain by itself; whatever comes first does.",
		Example: "  swamp-worker https://swamp.example.com:4000 --token-file /run/secrets/swamp\n" +
			"  SWAMP_WORKER_TOKEN=gpu-1.6f1c… swamp-worker ws://10.0.0.5:4000 --label gpu=true --concurrency 4",
		Args: wants("[URL]"),
	}
	if a.program == Swamp {
		cmd.Example = strings.ReplaceAll(cmd.Example, "swamp-worker ", "swamp worker connect ")
	}
	flags := cmd.Flags()
	flags.Var(&f.token, "token", "enrollment token, as NAME.SECRET; others on this machine can read arguments: prefer the variable or --token-file")
	flags.StringVar(&f.tokenFile, "token-file", "", "`FILE` that holds the enrollment token")
	flags.IntVar(&f.tokenFD, flagTokenFD, -1, "open file that holds the enrollment token")
	_ = flags.MarkHidden(flagTokenFD) // fails only for a flag that does not exist
	flags.Var(&f.labels, "label", "label of this worker; repeat, or in the variable separate by commas")
	flags.Var(f.concurrency, "concurrency", "how many steps run at a time; auto is the number of processors")
	f.life.add(flags)
	flags.StringVar(&f.cacheDir, "cache-dir", f.cacheDir, "`DIR` that holds this machine's identity; keep it, and give each worker on a machine its own")
	flags.Lookup("cache-dir").DefValue = "" // it depends on the machine
	flags.BoolVar(&f.noReconnect, "no-reconnect", false, "end when the connection is lost, and try once to make it")
	flags.Var(&f.logLevel, "log-level", "the least that is logged")
	a.addFormat(flags)
	bindEnv(flags, "label", envWorkerLabel, envWorkerLabels)
	bindAllEnv(flags, "SWAMP_WORKER_", flagTokenFD)
	flags.Bool(flagPrintConfig, false, "show each value and where it came from, and end")
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		url, err := f.url(a.host, args)
		if err != nil {
			return err
		}
		token, err := f.enrollment(from)
		if err != nil {
			return err
		}
		if f.cacheDir == "" {
			return usagef("%s is needed: this user has no home directory", from.name("cache-dir"))
		}
		cacheDir, err := filepath.Abs(f.cacheDir)
		if err != nil {
			return fmt.Errorf("find the cache directory: %w", err)
		}
		log := newLogger(a.host.Stderr, f.logLevel.value, "text")
		if from["token"] == fromFlag {
			log.Warn("a token among the arguments can be read by others on this machine: use the variable or --token-file")
		}
		if err := a.host.hideCredentials(cmd.Flags(), token); err != nil {
			return err
		}
		// From here on a signal is the first of two. One that comes before ends a program that has taken nothing yet. It stays so
		// to the end of the process: one that comes when everything is over does not change how that was.
		signals, _ := a.host.Notify(stopSignals()...)
		events := &eventPrinter{w: a.host.Stdout, json: a.json()}
		tools, err := daemon.StepTools()
		if err != nil {
			return err
		}
		agent, err := worker.New(worker.Config{
			URL:           url,
			Token:         token,
			Labels:        messages.LabelsOf(f.labels.labels),
			Concurrency:   f.concurrency.n,
			MaxDispatches: f.life.dispatches.n,
			IdleTimeout:   f.life.idle.d,
			MaxUptime:     f.life.uptime.d,
			DrainTimeout:  f.life.drain.d,
			DrainMode:     worker.DrainMode(f.life.mode.value),
			CacheDir:      cacheDir,
			NoReconnect:   f.noReconnect,
			Version:       version(),
			Logger:        log,
			OnEvent:       events.print,
			Tools:         tools,
		})
		if err != nil {
			return err
		}
		return a.work(cmd.Context(), agent, signals)
	})
}

// url is the argument, or its variable.
func (f *connectFlags) url(h *Host, args []string) (string, error) {
	name := "URL"
	var url string
	if len(args) > 0 {
		url = args[0]
	} else if value, ok := h.env(envOrchestratorURL); ok {
		name, url = "the variable "+envOrchestratorURL, value
	} else {
		return "", usagef("the URL of the orchestrator is missing: give it as the argument, or set %s", envOrchestratorURL)
	}
	if _, err := worker.ParseURL(url); err != nil {
		return "", usagef("invalid value of %s: %v", name, err)
	}
	return url, nil
}

// enrollment is the token, from the nearest place that has one: the flags before the variables.
func (f *connectFlags) enrollment(from settings) (messages.Secret, error) {
	var token messages.Secret
	var err error
	name := from.name("token")
	byFlag := func(flag string) bool { return from[flag] == fromFlag }
	switch {
	case f.tokenFD >= 0:
		return readTokenFD(f.tokenFD)
	case from.given("token") && from.given("token-file") && byFlag("token") == byFlag("token-file"):
		return "", usagef("%s and %s: give one of the two", from.name("token"), from.name("token-file"))
	case from.given("token-file") && !byFlag("token"):
		name = from.name("token-file")
		if token, err = daemon.ReadTokenFile(f.tokenFile); err != nil {
			return "", usagef("invalid value %q of %s: %v", f.tokenFile, name, err)
		}
	case from.given("token"):
		token = messages.Secret(strings.TrimSpace(f.token.secret.Reveal()))
	default:
		return "", usagef("an enrollment token is missing: give --token-file, or set %s", envWorkerToken)
	}
	owner, secret, ok := strings.Cut(token.Reveal(), ".")
	if !ok || owner == "" || secret == "" {
		return "", usagef("invalid token in %s: want NAME.SECRET, as swamp worker token create prints it", name)
	}
	return token, nil
}

// work runs the agent until it stops, and turns why into an exit code.
func (a *app) work(ctx context.Context, agent *worker.Agent, signals <-chan os.Signal) error {
	defer keepOnBrokenPipe()()
	type end struct {
		reason worker.StopReason
		err    error
	}
	ended := make(chan end, 1)
	go func() { // this function waits for it
		reason, err := agent.Run(ctx)
		ended <- end{reason, err}
	}()
	for count := 1; ; {
		select {
		case s := <-signals:
			switch count {
			case 1:
				fmt.Fprintf(a.host.Stderr, "%s: draining, finishes what runs; a second signal kills it\n", s)
				agent.Drain(worker.StopSignal)
			case 2:
				fmt.Fprintf(a.host.Stderr, "%s: killing what runs\n", s)
				agent.Kill()
			default: // its keepers go on killing
				return errFailed
			}
			count++
		case e := <-ended:
			switch {
			case e.reason.OnPurpose():
				return nil
			case e.err != nil:
				return e.err
			default:
				return errFailed
			}
		}
	}
}

// eventPrinter prints a worker's life to standard output.
type eventPrinter struct {
	w    io.Writer
	json bool
	mu   sync.Mutex
}

func (p *eventPrinter) print(e worker.Event) {
	line := []byte(safeText(e.String()))
	if p.json {
		var err error
		if line, err = json.Marshal(e); err != nil {
			return // fields are words and numbers
		}
	} else {
		line = append([]byte(e.At.Local().Format("15:04:05 ")), line...)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = p.w.Write(append(line, '\n')) // a reader that is gone does not stop a worker
}
