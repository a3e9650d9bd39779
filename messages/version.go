package messages

import (
	"fmt"
	"strings"
)

// ProtocolVersion is the version of the worker-facing wire. It is bumped whenever a worker-facing frame or the
// environment denylist changes; a test pins the digest of both to it. The orchestrator speaks this version and the one
// before.
//
//	1  the first: enroll, dispatch, output, results, drain
const ProtocolVersion = 1

// ProtocolMin is the oldest version that this program still speaks.
const ProtocolMin = 1

// MaxFrame is the largest frame in bytes that either side sends or reads.
const MaxFrame = 4 << 20

// Path is where the listener upgrades to WebSocket.
const Path = "/v1/connect"

// Subprotocol is what both sides of a socket name in the upgrade.
const Subprotocol = "swamp.v1"

// NegotiateProtocol returns the highest version that both sides speak. Ranges that do not meet are CodeProtocolMismatch,
// and the sentence names both.
func NegotiateProtocol(peerMin, peerMax int32) (int32, error) {
	if peerMin > ProtocolVersion || peerMax < ProtocolMin || peerMin > peerMax {
		return 0, Faultf(CodeProtocolMismatch, "protocol versions do not meet: the worker speaks %s, the orchestrator %s; upgrade the older of the two",
			versions(peerMin, peerMax), versions(ProtocolMin, ProtocolVersion))
	}
	return min(peerMax, ProtocolVersion), nil
}

func versions(lo, hi int32) string {
	if lo == hi {
		return fmt.Sprint(lo)
	}
	return fmt.Sprintf("%d to %d", lo, hi)
}

// DeniedEnv tells whether a variable of the orchestrator's environment is never shipped to a worker, whatever pattern
// asks for it: identity and runtime variables, and every SWAMP variable.
func DeniedEnv(name string) bool {
	upper := strings.ToUpper(name)
	switch upper {
	case "HOME", "USER", "USERNAME", "USERPROFILE", "LOGNAME", "SHELL", "PATH", "PWD", "OLDPWD", "TMPDIR", "TEMP", "TMP",
		"HOSTNAME", "TERM", "LANG", "TZ", "TMOUT", "BASH_ENV", "ENV", "IFS", "LD_PRELOAD", "LD_LIBRARY_PATH",
		"GODEBUG", "GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GOTRACEBACK":
		return true
	}
	for _, prefix := range []string{"SWAMP", "XDG_", "LC_", "DYLD_", "BASH_FUNC_"} {
		if strings.HasPrefix(upper, prefix) {
			return true
		}
	}
	return false
}
