import { RelayError } from '../errors.ts';
import { sha256 } from '../kit/sha256.ts';
import { type HandedCode, handedCode, type MintedPair, type PairingCodes } from './codes.ts';
import type { CodePolicy, Redeemer } from './policy.ts';

export interface RedemptionDeps {
  codes: PairingCodes;
  /** At home, its mirror. */
  home?():
    | {
        edgeCodes: { give(code: HandedCode): Promise<number>; isAtEdge(hash: string): boolean };
        mailboxUrl(): string | undefined;
      }
    | undefined;
  /** At the edge, its side of a mirror, which may not belong to a home yet. */
  edge?(): { isExpected(): boolean } | undefined;
}

export type Redemption = ReturnType<typeof createRedemption>;

/**
 * Makes codes valid at home or at the edge, never at both (contract 12 §2). By default, a code is valid at the relay that
 * makes it. A code in a QR payload made at the edge of a home is for a device of that home.
 */
export function createRedemption({ codes, home, edge }: RedemptionDeps) {
  /** @throws RelayError `conflict` if the code is already valid at the other side. */
  function refuseSecond(hash: string, redeem: Redeemer | undefined): void {
    const isSecond = redeem === 'edge' ? codes.isPending(hash) : home?.()?.edgeCodes.isAtEdge(hash);
    if (!isSecond) return;
    const side = redeem === 'edge' ? 'home' : 'the edge';
    throw new RelayError('conflict', `this code is good at ${side}, and has one redeemer: use another code`);
  }

  /** At the edge, true if the device of a code becomes one of home. */
  function isForHome(redeem: Redeemer | undefined): boolean {
    if (redeem === 'home')
      throw new RelayError('conflict', 'this is a relay at the edge: make a code for home at home');
    return redeem === 'edge' && edge?.()?.isExpected() === true;
  }

  return {
    /**
     * Registers a code of the host. Resolves with the socket of the edge if the code is valid only there.
     * @throws RelayError `conflict` if the code cannot be valid at that side, `unavailable` if the edge cannot be reached or
     * the code cannot be stored, `rate-limited` if too many are pending.
     */
    async register(code: string, policy: CodePolicy, redeem?: Redeemer): Promise<string | undefined> {
      const mirror = home?.();
      if (mirror) refuseSecond(sha256(code), redeem);
      if (mirror && redeem === 'edge') {
        await mirror.edgeCodes.give(handedCode(code, policy));
        return mirror.mailboxUrl();
      }
      await codes.register(code, policy, { forHome: edge?.() && isForHome(redeem) });
    },

    /**
     * A new code for a QR payload that the key with this id signs; with `url`, the socket of the edge, if the code is valid
     * only there.
     * @throws RelayError like `register`.
     */
    async mint(policy: CodePolicy, keyId?: string, redeem?: Redeemer): Promise<MintedPair & { url?: string }> {
      const mirror = home?.();
      if (mirror && redeem === 'edge') {
        const drawn = codes.draw();
        const expiresAt = await mirror.edgeCodes.give(handedCode(drawn.code, policy, drawn.secret));
        return { ...drawn, expiresAt, url: mirror.mailboxUrl() };
      }
      return codes.mint(policy, keyId, { forHome: edge?.() && isForHome(redeem ?? 'edge') });
    },
  };
}
