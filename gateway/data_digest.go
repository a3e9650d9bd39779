package gateway

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/swampd/swampd/messages"
)

// digestName is the one algorithm of Content-Digest and Repr-Digest (RFC 9530) that is looked at. Others are passed over.
const digestName = "sha-256"

// contentDigest reads Content-Digest; nil: none that is known.
func contentDigest(h http.Header) (*[sha256.Size]byte, error) {
	var found *[sha256.Size]byte
	for _, line := range h.Values("Content-Digest") {
		for member := range strings.SplitSeq(line, ",") {
			name, value, ok := strings.Cut(strings.Trim(member, " \t"), "=")
			if name != digestName {
				continue
			}
			value, opens := strings.CutPrefix(value, ":")
			value, closes := strings.CutSuffix(value, ":")
			sum, err := base64.StdEncoding.DecodeString(value)
			if !ok || !opens || !closes || err != nil || len(sum) != sha256.Size || found != nil {
				return nil, messages.Faultf(messages.CodeInvalid, "Content-Digest has no SHA-256 as sha-256=:BASE64:")
			}
			found = (*[sha256.Size]byte)(sum)
		}
	}
	return found, nil
}

// digestField is the value of such a header.
func digestField(sum []byte) string {
	return digestName + "=:" + base64.StdEncoding.EncodeToString(sum) + ":"
}
