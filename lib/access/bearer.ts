/**
 * The value of an `Authorization: Bearer` header: scheme in any case, value trimmed (contract 01 §1.2).
 * Null for another scheme or an empty value.
 */
export function bearerOf(authorization: string | null): string | null {
  const match = authorization === null ? null : /^bearer +(.*)$/i.exec(authorization.trim());
  return match?.[1]?.trim() || null;
}
