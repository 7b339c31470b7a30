"""A web service that sends a message for each order: `pip install rocketc fastapi uvicorn`, then

    NAMESRV_ADDR=127.0.0.1:9876 uvicorn service:app
    curl -X POST 127.0.0.1:8000/orders/o-1 -d 'one bicycle'

One producer serves all requests: it is opened when the service starts, and closed at its end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import PlainTextResponse

from rocketc.client import AsyncProducer
from rocketc.errors import BackpressureError, ClosedError, NoAnswerError, RocketcError
from rocketc.metrics import client_measures, exposition


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with AsyncProducer("shop") as app.state.producer:  # the name servers of NAMESRV_ADDR
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{order}", status_code=202)
async def add(order: str, request: Request) -> dict[str, str]:
    try:
        sent = await request.app.state.producer.send("orders", await request.body(), keys=order, shard=order)
    except ClosedError as error:  # the service ends; before ValueError, of which it is one
        raise HTTPException(503, str(error)) from None
    except ValueError as error:  # such as an empty body
        raise HTTPException(400, str(error)) from None
    except BackpressureError as error:
        raise HTTPException(429, str(error)) from None
    except NoAnswerError as error:  # it may be stored: the caller may send it again, and consumers allow it
        raise HTTPException(504, str(error)) from None
    except RocketcError as error:
        raise HTTPException(503, str(error)) from None
    return {"id": sent.msg_id}


@app.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> str:
    return exposition(client_measures(request.app.state.producer))
