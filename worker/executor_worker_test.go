package worker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// The variables by which a test tells its own binary to play a worker.
const (
	roleVariable   = "PLAY_ROLE"
	cacheVariable  = "PLAY_CACHE_DIR"
	dispatchPlayed = "PLAY_DISPATCH"
	scriptVariable = "PLAY_SCRIPT"
	graceVariable  = "PLAY_GRACE"
	fenceVariable  = "PLAY_FENCE"
	ignoreVariable = "PLAY_IGNORE_SIGNALS"
)

// playWorker runs one step, and shows its output on its own standard output.
func playWorker() int {
	grace, err := time.ParseDuration(os.Getenv(graceVariable))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	e, err := NewExecutor(ExecutorConfig{
		CacheDir: os.Getenv(cacheVariable),
		Logger:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if os.Getenv(ignoreVariable) != "" {
		// As nohup does, and a shell that starts something in the background.
		signal.Ignore(os.Interrupt, syscall.SIGHUP, syscall.SIGTERM)
	}
	fence := newFenceBoard()
	if left, err := time.ParseDuration(os.Getenv(fenceVariable)); err == nil {
		now := FenceClock()
		fence.set(Fence{TermAt: now + left, KillAt: now + left + grace})
	}
	task := shellTask(os.Getenv(scriptVariable))
	task.DispatchID = os.Getenv(dispatchPlayed)
	task.KillGrace, task.Fence = grace, fence.get
	o := e.Run(context.Background(), task, func() {}, stdoutOutput{})
	fmt.Println("outcome " + strconv.Quote(o.Status+" "+o.Error))
	return 0
}

type stdoutOutput struct{}

func (stdoutOutput) Write(_ Stream, p []byte) error {
	_, err := os.Stdout.Write(p)
	return err
}
