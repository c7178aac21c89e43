"""What is between a client and moto: it passes bytes on, and can be killed and frozen while moto keeps what it has.

python tests/aws_door.py PORT PORT_OF_MOTO
"""

from __future__ import annotations

import asyncio
import contextlib
import sys


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _serve(port: int, behind: int) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, here = await asyncio.open_connection("127.0.0.1", behind)
        await asyncio.gather(_pass(reader, here), _pass(there, writer))

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
