package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificateRequest is one line of the manager's wish list: name.crt and name.key are written for it.
type certificateRequest struct {
	Name   string   `json:"name"`
	User   string   `json:"user"`
	Groups []string `json:"groups"`
	DNS    []string `json:"dns"`
	IPs    []string `json:"ips"`
}

// runPKI makes what is missing in a folder: ca.crt and ca.key, sa.key and sa.pub, and a pair per request. Existing pairs
// stay, so that a restarted cluster keeps its identities and issued tokens stay valid.
func runPKI(args []string) error {
	flags := flag.NewFlagSet("pki", flag.ContinueOnError)
	dir := flags.String("dir", "", "folder for keys and certificates")
	requestsPath := flags.String("requests", "", "JSON list of {name, user, groups, dns, ips}")
	if err := flags.Parse(args); err != nil {
		return err
	}
	content, err := os.ReadFile(*requestsPath)
	if err != nil {
		return err
	}
	var requests []certificateRequest
	if err := json.Unmarshal(content, &requests); err != nil {
		return fmt.Errorf("%s: %w", *requestsPath, err)
	}
	if err := os.MkdirAll(*dir, 0o700); err != nil {
		return err
	}
	ca, caKey, err := authority(*dir)
	if err != nil {
		return err
	}
	if err := serviceAccountKeys(*dir); err != nil {
		return err
	}
	for _, request := range requests {
		if exists(filepath.Join(*dir, request.Name+".crt")) && exists(filepath.Join(*dir, request.Name+".key")) {
			continue
		}
		template := &x509.Certificate{
			Subject:     pkix.Name{CommonName: request.User, Organization: request.Groups},
			KeyUsage:    x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
			DNSNames:    request.DNS,
		}
		for _, ip := range request.IPs {
			template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
		}
		if _, _, err := issue(*dir, request.Name, template, ca, caKey); err != nil {
			return err
		}
	}
	return nil
}

func authority(dir string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	certificate, key := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	if !exists(certificate) || !exists(key) {
		return issue(dir, "ca", &x509.Certificate{
			Subject:               pkix.Name{CommonName: "embedded-cluster"},
			KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
			IsCA:                  true,
			BasicConstraintsValid: true,
		}, nil, nil)
	}
	certificateBlock, err := readPEM(certificate)
	if err != nil {
		return nil, nil, err
	}
	parsed, err := x509.ParseCertificate(certificateBlock)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", certificate, err)
	}
	keyBlock, err := readPEM(key)
	if err != nil {
		return nil, nil, err
	}
	parsedKey, err := x509.ParseECPrivateKey(keyBlock)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", key, err)
	}
	return parsed, parsedKey, nil
}

func serviceAccountKeys(dir string) error {
	if exists(filepath.Join(dir, "sa.key")) && exists(filepath.Join(dir, "sa.pub")) {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	if err := writePEM(filepath.Join(dir, "sa.pub"), "PUBLIC KEY", public); err != nil {
		return err
	}
	return writeKey(filepath.Join(dir, "sa.key"), key)
}

// issue signs template (with itself where there is no authority yet) and writes name.crt and name.key.
func issue(dir, name string, template, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().AddDate(10, 0, 0)
	if ca == nil {
		ca, caKey = template, key
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, ca, &key.PublicKey, caKey)
	if err != nil {
		return nil, nil, err
	}
	if err := writePEM(filepath.Join(dir, name+".crt"), "CERTIFICATE", signed); err != nil {
		return nil, nil, err
	}
	if err := writeKey(filepath.Join(dir, name+".key"), key); err != nil {
		return nil, nil, err
	}
	parsed, err := x509.ParseCertificate(signed)
	return parsed, key, err
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	content, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "EC PRIVATE KEY", content)
}

func writePEM(path, kind string, content []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600)
}

func readPEM(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, fmt.Errorf("%s: not a PEM file", path)
	}
	return block.Bytes, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
