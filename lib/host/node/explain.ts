const REASONS: Record<string, string> = {
  ECONNREFUSED: 'nothing is listening there',
  ENOTFOUND: 'host not found',
  EAI_AGAIN: 'the host name cannot be looked up',
  EHOSTUNREACH: 'host unreachable',
  ENETUNREACH: 'network unreachable',
  ETIMEDOUT: 'no answer',
  ECONNRESET: 'the connection was reset',
  EPROTO: 'the server does not speak TLS',
  CERT_HAS_EXPIRED: 'the certificate has expired',
  CERT_NOT_YET_VALID: 'the certificate is not valid yet',
};

/** Describes why a connection failed, for display. */
export function explain(error: NodeJS.ErrnoException): string {
  const reason = error.code === undefined ? undefined : REASONS[error.code];
  return (
    reason ?? (error.code && !error.message.includes(error.code) ? `${error.code}: ${error.message}` : error.message)
  );
}
