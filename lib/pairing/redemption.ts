import { RelayError } from '../errors.ts';
import { sha256 } from '../kit/bytes.ts';
import { type HandedCode, handedCode, type MintedPair, type PairingCodes } from './codes.ts';
import type { CodePolicy, Redeemer } from './policy.ts';

export interface RedemptionParts {
  codes: PairingCodes;
  /** At home, its mirror. */
  home?():
    | {
        edgeCodes: { give(code: HandedCode): Promise<number>; isAtEdge(hash: string): boolean };
        mailboxUrl(): string | undefined;
      }
    | undefined;
  /** At the edge, its half of a mirror, which may be of no home yet. */
  edge?(): { isExpected(): boolean } | undefined;
}

export type Redemption = ReturnType<typeof createRedemption>;

/**
 * Makes codes good at home or at the edge, never at both (contract 12 §2). Without a wish, a code is good at the relay that
 * makes it. One that is made in a QR payload at the edge of a home is for a device of home there.
 */
export function createRedemption({ codes, home, edge }: RedemptionParts) {
  /** @throws RelayError `conflict` when it is good at the other side already. */
  function refuseSecond(hash: string, redeem: Redeemer | undefined): void {
    const isSecond = redeem === 'edge' ? codes.isPending(hash) : home?.()?.edgeCodes.isAtEdge(hash);
    if (!isSecond) return;
    const side = redeem === 'edge' ? 'home' : 'the edge';
    throw new RelayError('conflict', `this code is good at ${side}, and has one redeemer: use another code`);
  }

  /** At the edge, whether the device of a code becomes one of home. */
  function isForHome(redeem: Redeemer | undefined): boolean {
    if (redeem === 'home')
      throw new RelayError('conflict', 'this is a relay at the edge: make a code for home at home');
    return redeem === 'edge' && edge?.()?.isExpected() === true;
  }

  return {
    /**
     * Registers a code of the host. Resolves with the socket of the edge where alone it is good, if it is.
     * @throws RelayError `conflict` where the code cannot be good at that side, `unavailable` when the edge cannot be
     * reached or the code cannot be stored, `rate-limited` when too many are pending.
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
     * A new code for a QR payload that the key with this id signs; with `url`, the socket of the edge where alone it is good.
     * @throws RelayError as `register`.
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
