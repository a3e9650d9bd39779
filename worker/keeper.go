package worker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"
)

// KeeperArg is the hidden first argument with which a program that embeds a worker starts itself as a keeper. Its main
// function must begin with
//
//	if len(os.Args) > 1 && os.Args[1] == worker.KeeperArg {
//		os.Exit(worker.RunKeeper())
//	}
//
// What the program's packages do before main counts for every step: a keeper takes 1.4 ms of a processor to start in
// a program that links this package alone, and 6 ms or more in one that links a whole orchestrator. From Run to the
// running script it is 2 ms at best in the first.
const KeeperArg = "__keeper"

// RunKeeper is the main function of a keeper, the small process between a worker and one step. It starts the step,
// relays its output, owns its clocks, and ends only when nothing of the step is left, whether or not the worker still
// lives. It returns the exit code of the process: 0 also for a step that failed, since the step's end is told in a
// frame.
//
// Standard input brings frames from the worker, standard output takes those to it. On Unix descriptor 3 is the lock
// that the keeper holds by having it open.
func RunKeeper() int {
	// The kernel kills the step's main process when the thread that started it ends, which must not be before the
	// keeper ends.
	runtime.LockOSThread()
	shieldKeeper()
	kind, payload, err := readFrame(os.Stdin, nil)
	if err != nil {
		// The worker died before it had said what to run.
		return 0
	}
	spec, err := decodeSpec(payload)
	if kind != frameSpec || err != nil {
		fmt.Fprintf(os.Stderr, "keeper: the first frame is no spec: kind %q, %v\n", kind, err)
		return 1
	}
	k := keeper{spec: spec, report: os.Stdout, commands: make(chan keeperEvent)}
	if err := k.run(); err != nil {
		fmt.Fprintln(os.Stderr, "keeper:", err)
		return 1
	}
	return 0
}

type keeper struct {
	spec     keeperSpec
	report   *os.File
	commands chan keeperEvent
}

// run returns an error only where the worker cannot be told of it in a frame.
func (k *keeper) run() error {
	lock, err := joinKeeperLock(k.spec.lock)
	if err != nil {
		return k.cannotStart(fmt.Errorf("lock for the keeper: %w", err), true)
	}
	defer func() { _ = lock.Close() }()
	tree, err := newProcessTree(k.spec.dispatch)
	if err != nil {
		return k.cannotStart(fmt.Errorf("prepare keeper: %w", err), true)
	}
	relay, stdout, stderr, err := newRelay(k.report)
	if err != nil {
		return k.cannotStart(fmt.Errorf("make pipes: %w", err), true)
	}
	if err := writeFrame(k.report, frameStarting, nil); err != nil {
		// Nobody is there any more, and nothing has been started.
		return nil
	}
	pid, err := tree.start(k.spec, stdout, stderr)
	closeErr := errors.Join(stdout.Close(), stderr.Close())
	if err != nil {
		return k.cannotStart(fmt.Errorf("start %s: %w", k.spec.argv[0], err), machineFault(err))
	}
	state := startKeeper(k.spec.timeout, k.spec.grace, k.spec.fence, tree.now())
	// Whether the worker still hears this is learned from standard input.
	_ = writeFrame(k.report, frameStarted, encodePID(pid))
	relay.start()
	go k.listen()
	state = k.watch(tree, state)
	relay.finish()
	_ = writeFrame(k.report, frameResult, keeperResult{reason: state.reason, exit: state.exit, left: state.left}.encode())
	return closeErr
}

func (k *keeper) cannotStart(err error, workerFault bool) error {
	return writeFrame(k.report, frameResult, keeperResult{startError: err.Error(), workerFault: workerFault}.encode())
}

// watch runs the state machine until the step has ended.
func (k *keeper) watch(tree *processTree, state keeperState) keeperState {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	apply := func(ev keeperEvent) {
		var effect keeperEffect
		state, effect = stepKeeper(state, ev, tree.now())
		switch effect {
		case effectTerm:
			tree.terminate()
		case effectKill:
			tree.kill()
		case effectNone:
		}
	}
	changed := false
	for {
		exit, exited, empty := tree.reap()
		switch {
		case exited:
			apply(keeperEvent{kind: eventExited, exit: exit})
		case changed && !empty:
			apply(keeperEvent{kind: eventChanged})
		}
		if empty {
			apply(keeperEvent{kind: eventEmpty})
		}
		if state.phase == keeperEnded {
			return state
		}
		var alarm <-chan time.Time
		if wake := state.wakeIn(tree.now()); wake >= 0 {
			timer.Reset(wake)
			alarm = timer.C
		}
		changed = false
		select {
		case <-tree.changed():
			changed = true
		case ev := <-k.commands:
			apply(ev)
		case <-alarm:
			apply(keeperEvent{kind: eventTick})
		}
	}
}

// listen turns the worker's frames into events. It ends with the pipe or with the process: after the step's end nobody
// takes its events, and the process exits.
func (k *keeper) listen() {
	var buf []byte
	for {
		var kind frameKind
		var err error
		kind, buf, err = readFrame(os.Stdin, buf)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				fmt.Fprintln(os.Stderr, "keeper: read from worker:", err)
			}
			k.commands <- keeperEvent{kind: eventWorkerGone}
			return
		}
		switch kind {
		case frameCancel:
			k.commands <- keeperEvent{kind: eventCancel}
		case frameKill:
			k.commands <- keeperEvent{kind: eventKill}
		case frameFence:
			if fence, err := decodeFence(buf); err == nil {
				k.commands <- keeperEvent{kind: eventFence, fence: fence}
			}
		default:
		}
	}
}
