import { readFile } from 'node:fs/promises';
import * as tls from 'node:tls';

/** Certificate authorities that calls to other servers accept. */
export interface Trust {
  /** TLS options with these authorities; undefined if Node's own are enough. Created once. */
  secureContext(): tls.SecureContext | undefined;
  /** Also accepts a certificate (PEM) of any issuer. Caches the last context only. */
  contextWith(certificate: string): tls.SecureContext;
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g;

/** Paths of files in PEM form, as in `Config`. */
interface Bundles {
  nodeExtraCaCerts?: string;
  caBundle?: string;
  sslCertFile?: string;
  requestsCaBundle?: string;
  curlCaBundle?: string;
}

/** The authorities that Node accepts by default. `getCACertificates` (Node 22.15) includes those added by its flags. */
function ownAuthorities(): readonly string[] {
  const { getCACertificates } = tls as { getCACertificates?(type: 'default'): string[] };
  return getCACertificates?.('default') ?? tls.rootCertificates;
}

/**
 * Reads the private authorities of the configuration: the file of `NODE_EXTRA_CA_CERTS`, which Node itself reads only
 * from the environment that it was started with, and the first of `SVC_CA_BUNDLE`, `SSL_CERT_FILE`,
 * `REQUESTS_CA_BUNDLE` and `CURL_CA_BUNDLE` that exists (contract 05 §1). They are added to Node's own. A file that
 * cannot be read is reported through `warn` and left out.
 */
export async function readTrust(config: Bundles, warn: (message: string) => void): Promise<Trust> {
  async function read(name: string, path: string | undefined): Promise<string[] | undefined> {
    if (path === undefined) return undefined;
    try {
      const found = (await readFile(path, 'utf8')).match(CERTIFICATE);
      if (found) return found;
      warn(`${name} names a file without a certificate in PEM form, which is left out: ${path}`);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      warn(`${name} names a file that cannot be read (${code}), which is left out: ${path}`);
    }
    return undefined;
  }

  const bundles: [string, string | undefined][] = [
    ['SVC_CA_BUNDLE', config.caBundle],
    ['SSL_CERT_FILE', config.sslCertFile],
    ['REQUESTS_CA_BUNDLE', config.requestsCaBundle],
    ['CURL_CA_BUNDLE', config.curlCaBundle],
  ];
  const extra = (await read('NODE_EXTRA_CA_CERTS', config.nodeExtraCaCerts)) ?? [];
  for (const [name, path] of bundles) {
    const found = await read(name, path);
    if (!found) continue;
    extra.push(...found);
    break;
  }
  return createTrust(extra);
}

/** Trusts these authorities (PEM) besides those of Node. */
export function createTrust(extra: readonly string[] = []): Trust {
  let context: tls.SecureContext | undefined;
  let last: { certificate: string; context: tls.SecureContext } | undefined;
  return {
    secureContext() {
      if (extra.length > 0) context ??= tls.createSecureContext({ ca: [...ownAuthorities(), ...extra] });
      return context;
    },
    contextWith(certificate) {
      if (last?.certificate !== certificate) {
        const ca = [...ownAuthorities(), ...extra, certificate];
        const made = tls.createSecureContext({ ca, allowPartialTrustChain: true, minVersion: 'TLSv1.2' });
        last = { certificate, context: made };
      }
      return last.context;
    },
  };
}
