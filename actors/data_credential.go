package actors

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
)

// credentialKey is the secret of this boot that the credentials of dispatches are made from. No table is needed to know them
// again: a dispatch, its generation and a MAC over both. They die with the boot, and say nothing once their lease is over.
type credentialKey [32]byte

func newCredentialKey() credentialKey {
	var k credentialKey
	_, _ = rand.Read(k[:]) // it never fails: the process ends instead
	return k
}

// credentialPrefix tells the credential of a dispatch from a server token.
const credentialPrefix = "d."

// mint is the credential of a dispatch under a generation of its lease: d.<dispatch>.<generation>.<MAC in hex>.
func (k *credentialKey) mint(dispatch string, generation uint32) string {
	return credentialPrefix + dispatch + "." + strconv.FormatUint(uint64(generation), 10) + "." + hex.EncodeToString(k.mac(dispatch, generation))
}

// open takes a credential apart. It is false for everything that this boot did not make.
func (k *credentialKey) open(credential string) (dispatch string, generation uint32, ok bool) {
	rest, ok := strings.CutPrefix(credential, credentialPrefix)
	last := strings.LastIndexByte(rest, '.')
	if !ok || last < 0 {
		return "", 0, false
	}
	mac, err := hex.DecodeString(rest[last+1:])
	rest = rest[:last]
	middle := strings.LastIndexByte(rest, '.')
	if err != nil || middle < 0 {
		return "", 0, false
	}
	n, err := strconv.ParseUint(rest[middle+1:], 10, 32)
	if err != nil {
		return "", 0, false
	}
	dispatch, generation = rest[:middle], uint32(n)
	if !hmac.Equal(mac, k.mac(dispatch, generation)) || k.mint(dispatch, generation) != credential { // one spelling each
		return "", 0, false
	}
	return dispatch, generation, true
}

// mac covers the generation in a fixed width, so that no two pairs have the same text.
func (k *credentialKey) mac(dispatch string, generation uint32) []byte {
	h := hmac.New(sha256.New, k[:])
	_, _ = h.Write(binary.BigEndian.AppendUint32(nil, generation)) // a hash takes everything
	_, _ = h.Write([]byte(dispatch))
	return h.Sum(nil)
}
