/** A certificate with its private key, both as PEM. */
export interface IdentityPem {
  cert: string;
  key: string;
}

/** A leaf certificate and how a private key fits it, read from PEM. */
export interface IdentityFacts {
  /** Epoch milliseconds. */
  validFrom: number;
  validTo: number;
  /** Names in the certificate for display, such as `IP Address:10.0.0.1`. Never decide by them: see `isFor`. */
  names: string;
  /** True if the key belongs to the certificate. */
  keyMatches: boolean;
  /** True if clients accept the key: EC, or RSA with 2048 bits or more. */
  keyIsStrong: boolean;
  /** `sha256/` and the base64 SHA-256 of the public key (SubjectPublicKeyInfo), which is what clients pin. */
  pin: string;
  /** Base64 of the leaf's DER, without line breaks. */
  certDer: string;
  /**
   * True if the subject alternative names contain exactly this IP address or host name. Compares parsed values, without
   * wildcards and without the common name.
   */
  isFor(host: string): boolean;
}

/** Why a pair of PEM texts is not a usable identity. */
export type IdentityProblem = 'certificate-unreadable' | 'key-unreadable' | 'key-encrypted';

/** X.509 identities of TLS servers (contract 08 §2). */
export interface HostIdentities {
  /**
   * Makes a P-256 key and a self-signed certificate for `host`, an IP address in canonical spelling or a host name, valid from an hour before
   * `now` (epoch milliseconds) for ten years.
   */
  generate(host: string, now: number): Promise<IdentityPem>;
  /** Reads the first certificate of `cert`, and `key`. */
  read(pem: IdentityPem): IdentityFacts | IdentityProblem;
  /** Signs with a private key (PEM): SHA-256 with ECDSA, raw r and s, or with RSA (PKCS #1). */
  sign(key: string, bytes: Uint8Array): Uint8Array;
  /**
   * The pin of the key that a TLS server proves to hold, regardless of its certificate; null if none is served within
   * `timeout` ms.
   */
  servedPin(host: string, port: number, timeout: number): Promise<string | null>;
}
