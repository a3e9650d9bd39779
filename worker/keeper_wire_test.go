package worker

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestKeeperWire_EverythingSurvives(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		bytesAsString := rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })
		duration := rapid.Map(rapid.Int64(), func(n int64) time.Duration { return time.Duration(n) })
		spec := keeperSpec{
			dispatch: bytesAsString.Draw(t, "dispatch"),
			lock:     bytesAsString.Draw(t, "lock"),
			dir:      bytesAsString.Draw(t, "dir"),
			argv:     rapid.SliceOfN(bytesAsString, 1, 5).Draw(t, "argv"),
			env:      rapid.SliceOfN(bytesAsString, 0, 5).Draw(t, "env"),
			timeout:  duration.Draw(t, "timeout"),
			grace:    duration.Draw(t, "grace"),
			fence:    Fence{TermAt: duration.Draw(t, "term"), KillAt: duration.Draw(t, "kill")},
		}
		result := keeperResult{
			startError:  bytesAsString.Draw(t, "error"),
			workerFault: rapid.Bool().Draw(t, "fault"),
			reason:      stopReason(bytesAsString.Draw(t, "reason")),
			exit:        exitStatus{code: rapid.Int().Draw(t, "code"), signal: bytesAsString.Draw(t, "signal")},
			left:        rapid.Bool().Draw(t, "left"),
		}
		var pipe bytes.Buffer
		for _, f := range []struct {
			kind    frameKind
			payload []byte
		}{{frameSpec, spec.encode()}, {frameResult, result.encode()}, {frameFence, spec.fence.encode()}} {
			if err := writeFrame(&pipe, f.kind, f.payload); err != nil {
				t.Fatal(err)
			}
		}
		opt := cmp.AllowUnexported(keeperSpec{}, keeperResult{}, exitStatus{})
		kind, payload, err := readFrame(&pipe, nil)
		gotSpec, specErr := decodeSpec(payload)
		if err != nil || specErr != nil || kind != frameSpec || !cmp.Equal(spec, gotSpec, opt) {
			t.Fatalf("spec: %v %v %s", err, specErr, cmp.Diff(spec, gotSpec, opt))
		}
		_, payload, err = readFrame(&pipe, payload)
		gotResult, resultErr := decodeResult(payload)
		if err != nil || resultErr != nil || !cmp.Equal(result, gotResult, opt) {
			t.Fatalf("result: %v %v %s", err, resultErr, cmp.Diff(result, gotResult, opt))
		}
		_, payload, err = readFrame(&pipe, payload)
		gotFence, fenceErr := decodeFence(payload)
		if err != nil || fenceErr != nil || gotFence != spec.fence {
			t.Fatalf("fence: %v %v %v", err, fenceErr, gotFence)
		}
		if _, _, err := readFrame(&pipe, payload); !errors.Is(err, io.EOF) {
			t.Fatalf("at the end: %v", err)
		}
	})
}

func FuzzKeeperWire_BadFramesAreRefused(f *testing.F) {
	good := keeperSpec{dispatch: "d", argv: []string{"/bin/sh"}, env: []string{"A=b"}}
	f.Add(good.encode())
	f.Add(keeperResult{startError: "no"}.encode())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, data []byte) {
		if spec, err := decodeSpec(data); err == nil && !bytes.Equal(spec.encode(), data) {
			// The same number has several encodings, but the meaning must be one.
			again, err := decodeSpec(spec.encode())
			if err != nil || !cmp.Equal(spec, again, cmp.AllowUnexported(keeperSpec{})) {
				t.Errorf("%v is not %v: %v", spec, again, err)
			}
		}
		_, _ = decodeResult(data)
		_, _ = decodeFence(data)
		_, _ = decodePID(data)
		_, _, _ = readFrame(bytes.NewReader(data), nil)
	})
}

func TestKeeperWire_ATornFrameIsNoEnd(t *testing.T) {
	t.Parallel()
	var pipe bytes.Buffer
	if err := writeFrame(&pipe, frameSpec, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	whole := pipe.Bytes()
	for n := 1; n < len(whole); n++ {
		if _, _, err := readFrame(bytes.NewReader(whole[:n]), nil); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%d bytes of %d: %v", n, len(whole), err)
		}
	}
}
